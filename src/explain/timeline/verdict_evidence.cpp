// SPDX-License-Identifier: Apache-2.0
#include "explain/timeline/verdict_evidence.h"

#include <fmt/format.h>

#include "base/units.h"

namespace epilogue::trace {
namespace {

// Causes of idleness below this share of the wall time are not worth a sentence.
constexpr double kNotablePct = 10;

double share_pct(int64_t part_ns, int64_t whole_ns) {
  return whole_ns == 0 ? 0 : static_cast<double>(part_ns) * 100 / static_cast<double>(whole_ns);
}

// The cause first, then what else is not small.
void add_reasons(std::vector<std::string>& list, Bound bound, const PartTimes& times) {
  const auto sentence = [&](const char* start, const IdlePart& part) {
    return fmt::format("{}: {} ({:.1f} %) {}.", start, format_duration_ns(part.ns),
                       share_pct(part.ns, times.wall_ns()), part.what);
  };
  const std::array<IdlePart, 5> parts = idle_parts(times);
  const Bound cause = bound == Bound::queue ? Bound::launch : bound;
  for (const IdlePart& part : parts)
    if (part.bound == cause) list.push_back(sentence("Largest loss", part));
  if (bound == Bound::queue)
    list.push_back(fmt::format("Of that, launch calls took {} only: launches are not the cause.",
                               format_duration_ns(times.of(TimePart::launch))));
  if (bound == Bound::compute || bound == Bound::memory)
    list.push_back(fmt::format(
        "{:.1f} % of its working time is matrix products, convolutions and attention (judged by "
        "kernel names; memory may limit products of few rows).",
        share_pct(times.of(TimePart::compute), times.device_ns())));
  for (const IdlePart& part : parts)
    if (part.bound != cause && share_pct(part.ns, times.wall_ns()) >= kNotablePct)
      list.push_back(sentence("Further loss", part));
}

std::string profiler_sentence(const PartTimes& times, const ProfilerCost& profiler) {
  const char* source = profiler.is_measured   ? "measured by the recorder"
                       : profiler.is_inflated ? "estimated, with shapes, stacks or memory recorded"
                                              : "estimated";
  return fmt::format(
      "The profiler's own {:.1f} us per op ({}) made up about {} of the idle time; it is taken out "
      "before judging.",
      profiler.ns_per_op * 1e-3, source, format_duration_ns(times.of(TimePart::profiler)));
}

// Where the share that decides is not the one that the device worked.
std::string judged_sentence(const PartTimes& times) {
  std::string out;
  if (times.of(TimePart::communication) > 0)
    out = fmt::format(" {} of collectives that no other kernel hides",
                      format_duration_ns(times.of(TimePart::communication)));
  if (times.of(TimePart::profiler) > 0)
    out += fmt::format("{} {} of the profiler's own time", out.empty() ? "" : " and",
                       format_duration_ns(times.of(TimePart::profiler)));
  return fmt::format("Without{}, it worked {:.1f} % of the time: the verdict rests on this share.",
                     out, times.judged_pct());
}

std::string unsure_queue_sentence(const PartTimes& times) {
  return fmt::format(
      "Launched work waited {} before the first recorded work of the device. The device may have "
      "been busy then, with work that was launched before the recording.",
      format_duration_ns(times.queue_before_first_ns));
}

}  // namespace

std::array<IdlePart, 5> idle_parts(const PartTimes& times) {
  return {
      {{Bound::overhead, times.of(TimePart::overhead),
        "idle while the host was in ops or between them"},
       {Bound::launch, times.of(TimePart::launch) + times.of(TimePart::queue),
        "idle while the host was inside launch calls or launched work had not started"},
       {Bound::sync, times.of(TimePart::sync) + times.of(TimePart::communication),
        "idle while the host waited for the device, or in collectives that no kernel hides"},
       {Bound::data, times.of(TimePart::data), "idle while the host was in the data loader"},
       {Bound::unknown, times.of(TimePart::other),
        "idle while the trace says nothing of the host: the cause of this idle time is unknown"}}};
}

double PartTimes::judged_pct() const {
  const int64_t judged_ns = wall_ns() - of(TimePart::profiler);
  return judged_ns > 0 ? share_pct(device_ns(), judged_ns) : 100;
}

std::vector<std::string> time_evidence(Bound bound, const PartTimes& times, const Region& region,
                                       const ProfilerCost& profiler) {
  const int64_t busy = times.device_ns() + times.of(TimePart::communication);
  std::vector<std::string> list;
  list.push_back(fmt::format("The device worked {} of {} ({:.1f} %); launches: {}, kernels: {}.",
                             format_duration_ns(busy), format_duration_ns(times.wall_ns()),
                             share_pct(busy, times.wall_ns()), format_count(region.launches),
                             format_count(region.kernels)));
  const bool is_worked_half = share_pct(busy, times.wall_ns()) >= kDeviceBoundPct;
  if (is_worked_half != (times.judged_pct() >= kDeviceBoundPct))
    list.push_back(judged_sentence(times));
  add_reasons(list, bound, times);
  if (share_pct(times.queue_before_first_ns, times.wall_ns()) >= kNotablePct)
    list.push_back(unsure_queue_sentence(times));
  if (times.of(TimePart::profiler) > 0) list.push_back(profiler_sentence(times, profiler));
  return list;
}

std::vector<std::string> missing_evidence(Bound bound, const Region& region) {
  if (bound == Bound::no_kernels)
    return {counted(region.launches, "launch", "launches") +
            " but no kernel: the profiler lost the device's records."};
  if (region.ops == 0) return {"There are neither ops nor launches nor device work."};
  return {"No launch and no device work: only the host was at work here."};
}

}  // namespace epilogue::trace
