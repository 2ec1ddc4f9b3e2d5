// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

void find_collectives(const Explanation& e, std::vector<Finding>& out) {
  const int64_t exposed = e.collectives.communication_ns - e.collectives.overlap_ns;
  if (!is_worth_it(e, to_us(exposed))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("collectives that no other kernel hides take {}", duration(exposed));
  for (const CollectiveStats& c : e.collectives.kinds)
    f.evidence.push_back(fmt::format("{}: {}, {}, of that {} exposed", c.name,
                                     counted(c.time.count, "time", "times"),
                                     duration(c.time.total_ns), duration(c.exposed_ns)));
  advise(f,
         "a rank that arrives early waits here: explain the folder with all ranks to see for whom");
  f.saving_us = to_us(exposed);
  out.push_back(std::move(f));
}

void find_host_collectives(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host->collectives) return;
  const HostCollectives& c = *e.host->collectives;
  if (!is_worth_it(e, to_us(c.alone_ns))) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("collectives run for {} in which no op does: the run most likely waits for them",
                  share(*e.host, c.alone_ns));
  f.evidence.push_back(times_line(c.name, counted(c.count, "collective", "collectives"), c.time));
  advise(f,
         "a rank that arrives early waits here: explain the folder with all ranks to see for whom; "
         "fewer bytes (gradients in bf16, no_sync() between micro-batches) shorten them");
  f.cost_us = to_us(c.alone_ns);
  f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(c.alone_ns)});
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kExposedCollectivesRule = {
    .id = "exposed-collectives",
    .says =
        "how long collectives run that no other kernel hides; without a device, how long "
        "collectives of CPUs (`gloo:`, `mpi:`, `ucc:`) run in which the main thread is in no op",
    .said_if = [] { return "that is " + over_min_share(); },
    .find =
        [](const Explanation& e, std::vector<Finding>& out) {
          e.host ? find_host_collectives(e, out) : find_collectives(e, out);
        }};

}  // namespace epilogue::trace
