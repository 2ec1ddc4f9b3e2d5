// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/tour_document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"

namespace epilogue::tool {
namespace {

constexpr int kRowsShown = 12;
constexpr size_t kNameWidth = 44;

std::string time_or_dash(int64_t ns) {
  return ns == 0 ? "-" : format_duration_ns(static_cast<double>(ns));
}

trace::Grid largest_rows(trace::KeyAverages averages) {
  trace::sort_rows(averages.rows, "cpu_time_total");
  // Kernels have no CPU time of their own and would come last; they are what a step is about.
  std::stable_sort(averages.rows.begin(), averages.rows.end(),
                   [](const trace::Row& a, const trace::Row& b) {
                     return std::max(a.cpu_time_total_ns, a.device_time_total_ns) >
                            std::max(b.cpu_time_total_ns, b.device_time_total_ns);
                   });
  trace::Grid grid;
  grid.columns = {{"name", true, kNameWidth},
                  {"calls"},
                  {"CPU total"},
                  {"self CPU"},
                  {"kernels"},
                  {"kernels %"}};
  const auto all = static_cast<double>(averages.self_device_time_total_ns());
  for (const trace::Row& row : averages.rows) {
    const auto kernels = static_cast<double>(row.device_time_total_ns);
    grid.rows.push_back({row.key, std::to_string(row.count), time_or_dash(row.cpu_time_total_ns),
                         time_or_dash(row.self_cpu_time_total_ns),
                         time_or_dash(row.device_time_total_ns),
                         kernels == 0 ? "-" : fmt::format("{:.1f} %", kernels / all * 100)});
  }
  trace::limit_rows(grid, kRowsShown);
  return grid;
}

}  // namespace

trace::Document step_document(int number, const TourStop& stop, const Workload& workload,
                              const ProfileRun& run, const std::string& page) {
  return {trace::Heading{fmt::format("{}. {}", number, stop.title), 3},
          trace::Paragraph{workload.description},
          trace::preformatted("\n"),
          largest_rows(run.averages),
          trace::preformatted("\n"),
          trace::Paragraph{fmt::format(
              "Per step: {}, {} in kernels, {} around them.", kernels_per_step_text(run),
              format_duration_ns(quantity(run, "kernel_us_per_step") * 1e3),
              format_duration_ns(quantity(run, "host_us_per_step") * 1e3))},
          trace::Paragraph{"See: " + stop.what_to_see},
          trace::Paragraph{"Trace: " + run.trace_file},
          trace::Paragraph{"Table: " + run.table_file},
          trace::Paragraph{"Page: " + page},
          trace::preformatted("\n")};
}

}  // namespace epilogue::tool
