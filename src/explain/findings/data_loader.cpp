// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Each step makes an iterator of the loader, whose sampler permutes the whole data set: the
// function runs, or the permutation is made, as often as there are steps.
bool makes_iterators(const Explanation& e) {
  const auto steps = static_cast<int64_t>(e.steps.size());
  if (!e.host || steps < 2) return false;
  const auto is_iterator = [&](const HostFunction& f) {
    return f.count >= steps && f.name.find("data/dataloader.py") != std::string::npos &&
           f.name.find(": __iter__") != std::string::npos;
  };
  const auto is_permutation = [&](const HostOp& op) {
    return op.name == "aten::randperm" && op.count >= steps;
  };
  return std::ranges::any_of(e.host->functions, is_iterator) ||
         std::ranges::any_of(e.host->ops, is_permutation);
}

constexpr std::string_view kOneIterator =
    "make the iterator once and go on with it (for batch in loader), not next(iter(loader)) in "
    "each step: each iterator starts anew and its sampler permutes the whole data set (randperm, "
    "tolist) for one batch";

std::string_view loader_advice(const Explanation& e) {
  const bool is_single = std::ranges::any_of(e.hot_spots.loaders, [](const LoaderSpot& spot) {
    return spot.name.find("SingleProcess") != std::string::npos;
  });
  return is_single
             ? "it loads in the training process: num_workers > 0 loads beside the model, "
               "persistent_workers keeps the workers; samples that are tensors already are picked "
               "at once (a BatchSampler as sampler with batch_size=None, or __getitems__), not one "
               "by one; cheaper decoding helps in any case"
             : "more loader workers (num_workers), fetching ahead (prefetch_factor) or cheaper "
               "decoding help";
}

void find_data_loader(const Explanation& e, std::vector<Finding>& out) {
  const int64_t idle = idle_ns(e, IdleCause::data);
  if (!is_worth_it(e, to_us(idle))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the device idles {} while the host waits for data", duration(idle));
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(kShown, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  advise(f, loader_advice(e));
  f.saving_us = to_us(idle);
  claim_idle(e, f, {IdleCause::data}, to_us(idle));
  out.push_back(std::move(f));
}

void find_host_data(const Explanation& e, std::vector<Finding>& out) {
  const int64_t ns = e.host->of(HostPart::data);
  if (!is_worth_it(e, to_us(ns))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the data loader takes {}", share(*e.host, ns));
  for (size_t i = 0; i < std::min(kHostFindings, e.hot_spots.loaders.size()); ++i) {
    const LoaderSpot& spot = e.hot_spots.loaders[i];
    f.evidence.push_back(
        times_line(spot.name, counted(spot.time.count, "time", "times"), spot.time));
  }
  const bool is_made_anew = makes_iterators(e);
  if (is_made_anew) f.evidence.emplace_back("an iterator of the loader is made in each step");
  advise(f, is_made_anew ? kOneIterator : loader_advice(e));
  f.saving_us = to_us(ns);
  f.claims.push_back({{std::string(kDataPart)}, to_us(ns)});
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kDataLoaderRule = {
    .id = "data-loader",
    .says =
        "how long the device idled while the host was in a data loader; without a device, how long "
        "the loader took",
    .said_if = [] { return "that is " + over_min_share(); },
    .find =
        [](const Explanation& e, std::vector<Finding>& out) {
          e.host ? find_host_data(e, out) : find_data_loader(e, out);
        },
    .confidence = Confidence::high,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
