// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kBubblePct = 5;       // of the ranks' time
constexpr double kUnevenStages = 0.1;  // more work than the mean over stages

void find_bubbles(const RanksExplanation& e, std::vector<Finding>& out) {
  if (!e.collectives.pipeline || e.collectives.pipeline->bubble_pct < kBubblePct) return;
  const Pipeline& pipeline = *e.collectives.pipeline;
  const auto by_work = [](const PipelineStage& a, const PipelineStage& b) {
    return a.work_ns < b.work_ns;
  };
  const auto [least, most] =
      std::minmax_element(pipeline.stages.begin(), pipeline.stages.end(), by_work);
  double span_ns = 0;
  double work_ns = 0;
  for (const PipelineStage& s : pipeline.stages) {
    span_ns += static_cast<double>(s.span_ns);
    work_ns += static_cast<double>(s.work_ns);
  }
  const auto stages = static_cast<double>(pipeline.stages.size());
  const double mean_ns = work_ns / stages;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("the pipeline of {} stages stands still for up to {:.1f} % of the time",
                        pipeline.stages.size(), pipeline.bubble_pct);
  for (const PipelineStage* s : {&*most, &*least})
    f.evidence.push_back(
        fmt::format("stage {} works {} of {}, waits {} in sends and receives, idles {}", s->stage,
                    duration(s->work_ns), duration(s->span_ns), duration(s->send_recv_ns),
                    duration(s->idle_ns)));
  if (static_cast<double>(most->work_ns) >= (1 + kUnevenStages) * mean_ns)
    advise(f, fmt::format(
                  "the stages are uneven: give stage {} fewer layers, since the others wait for "
                  "it; it works {} more than the mean",
                  most->stage, duration(most->work_ns - static_cast<int64_t>(mean_ns))));
  else
    advise(
        f,
        "more micro-batches in each step, or several stages on each rank (interleaved 1F1B, zero "
        "bubble): the stages are even, and filling and draining takes (stages - 1) micro-batches");
  f.cost_us = pipeline.bubble_pct / 100 * to_us(static_cast<int64_t>(span_ns / stages));
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kPipelineBubblesRule = {
    .id = "pipeline-bubbles",
    .says = "how long the stages of a pipeline wait for each other, and which stage works most",
    .said_if =
        [] {
          return fmt::format(
              "a process group names a pipeline, and idle time with exposed sends and receives "
              "takes "
              "{:g} % of the ranks' time or more; stages are uneven if one works {:g} % more than "
              "the "
              "mean",
              kBubblePct, 100 * kUnevenStages);
        },
    .find = find_bubbles};

}  // namespace epilogue::trace
