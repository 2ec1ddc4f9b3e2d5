// SPDX-License-Identifier: Apache-2.0
// The key-averages table.
#include "epilogue/trace/table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "epilogue/trace/report.h"
#include "explain/answer/load.h"
#include "explain/render/document.h"
#include "explain/render/json_numbers.h"
#include "explain/render/table_rows.h"

namespace epilogue::trace {
namespace {

// Without a wish: the device's time where there is any, else the host's.
std::string default_sort(const KeyAverages& averages) {
  return averages.self_device_time_total_ns() > 0 ? "self_device_time_total"
                                                  : "self_cpu_time_total";
}

// What the table and its JSON are made of.
struct TableAnswerData {
  KeyAverages averages;
  TableOptions table;  // of text and Markdown
  TableOptions all;    // of JSON
  int64_t events = 0;
  int64_t skipped_events = 0;
  std::optional<double> captured_pct;  // of the work of graphs
};

std::string table_answer_json(const TableAnswerData& data) {
  auto json = parse_ordered_json(table_json(data.averages, data.all));
  json["events"] = data.events;
  json["skipped_events"] = data.skipped_events;
  if (data.averages.has_captured_ops)
    json["captured_pct"] =
        data.captured_pct ? nlohmann::ordered_json(*data.captured_pct) : nlohmann::ordered_json();
  return dump_json(json);
}

}  // namespace

Result<Answer> table_answer(const TraceInput& input, const TableAnswerOptions& options,
                            const AnswerHooks& hooks) {
  if (!options.sort_by.empty()) {  // an unknown key is said before a large file is read
    std::vector<Row> none;
    sort_rows(none, options.sort_by);
  }
  // Python frames take their time out of the steps' own, as in PyTorch's table.
  const Result<Trace> trace = load_trace(input, PythonFrames::events, hooks);
  if (!trace) return trace.failure();
  const Result<std::optional<GraphReference>> capture = read_capture(options.capture, hooks);
  if (!capture) return capture.failure();
  auto data = std::make_shared<TableAnswerData>();
  std::optional<CapturedOps> captured;
  if (capture.value()) {
    captured = captured_ops(trace.value(), link(trace.value()), &*capture.value());
    if (captured->graph_ns > 0)
      data->captured_pct =
          100.0 * static_cast<double>(captured->named_ns) / static_cast<double>(captured->graph_ns);
    else
      warn_of_capture(trace.value().import.path, hooks);
    poll(hooks);
  }
  data->averages =
      key_averages(trace.value(), {.group_by_input_shape = options.group_by_input_shape,
                                   .captured = captured ? &*captured : nullptr});
  poll(hooks);
  data->events = trace.value().import.events;
  data->skipped_events = trace.value().import.skipped_events;
  data->table.sort_by = options.sort_by.empty() ? default_sort(data->averages) : options.sort_by;
  data->all = data->table;
  data->all.row_limit = options.row_limit.value_or(-1);
  data->table.row_limit = options.row_limit.value_or(data->table.row_limit);
  Preformatted lines = {format_table(data->averages, data->table),
                        table_markdown(data->averages, data->table)};
  if (lines.text.empty())
    lines = preformatted("no op, no annotation and no device work was recorded\n");
  Document document = {std::move(lines)};
  if (data->captured_pct)
    document.push_back(
        Paragraph{fmt::format("{:.0f} % of the time of replayed graphs is booked to the ops that "
                              "captured it. Their calls count here and take no time of the CPU.",
                              *data->captured_pct)});
  document.json = [d = data.get()] { return table_answer_json(*d); };
  document.csv = [d = data.get()] { return key_averages_csv(d->averages, d->all); };
  return Answer(std::move(document), data);
}

}  // namespace epilogue::trace
