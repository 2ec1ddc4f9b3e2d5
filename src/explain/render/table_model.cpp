// SPDX-License-Identifier: Apache-2.0
#include "explain/render/table_model.h"

#include <algorithm>

#include "base/printable.h"
#include "base/units.h"
#include "explain/render/table_formats.h"
#include "explain/render/table_rows.h"
#include "explain/render/utf8.h"

namespace epilogue::trace {
namespace {

constexpr size_t kMargin = 4;  // a text column is that much wider than its longest text

size_t as_size(int width) { return width < 0 ? 0 : static_cast<size_t>(width); }

template <class Length>
size_t column_width(const std::vector<Row>& rows, int max_width, Length length) {
  size_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, length(row));
  return std::min(longest + kMargin, as_size(max_width));
}

// A name may hold line breaks, which would end the row.
std::string one_line(const std::string& text) { return printable(text, text.size()); }

// Long names keep their start: 52 characters and "...".
std::string cut_name(const std::string& name, int max_width) {
  const size_t limit = as_size(max_width - 3);
  if (utf8_length(name) < limit) return name;
  return std::string(utf8_prefix(name, limit)) + "...";
}

// Long paths keep their end.
std::string cut_path(const std::string& path, size_t width) {
  if (utf8_length(path) <= width) return path;
  if (width <= 3) return std::string(utf8_suffix(path, width));
  return "..." + std::string(utf8_suffix(path, width - 3));
}

class ModelBuilder {
 public:
  ModelBuilder(const KeyAverages& averages, const TableOptions& options)
      : averages_(averages), options_(options) {
    for (const Row& row : averages.rows) {
      has_device_time_ |= row.self_device_time_total_ns > 0;
      has_device_memory_ |= row.self_device_memory_bytes > 0;
      has_overload_names_ |= !row.overload_name.empty();
      has_shapes_ |= !row.input_shapes.empty() && row.input_shapes != "[]";
      model_.has_stack |= !row.stack.empty();
      if (averages.with_flops && row.flops > 0)
        smallest_flops_ = smallest_flops_ == 0 ? row.flops : std::min(smallest_flops_, row.flops);
    }
    has_device_memory_ &= !averages.device_label.empty();
    model_.has_flops = smallest_flops_ > 0;
    if (model_.has_flops) scale_ = flops_scale(smallest_flops_);
    total_cpu_us_ = to_us(averages.self_cpu_time_total_ns());
    total_device_us_ = to_us(averages.self_device_time_total_ns());
  }

  TableModel build() {
    add_columns();
    for (const Row& row : shown_rows(averages_, options_)) {
      model_.cells.push_back(cells(row));
      std::vector<std::string>& more = model_.more_frames.emplace_back();
      for (size_t i = 1; i < row.stack.size(); ++i)
        more.push_back(cut_path(one_line(row.stack[i]), source_width_));
    }
    model_.footers.push_back("Self CPU time total: " + time(total_cpu_us_));
    if (has_device_time_)
      model_.footers.push_back("Self " + averages_.device_label +
                               " time total: " + time(total_device_us_));
    return std::move(model_);
  }

 private:
  std::string time(double us) const { return table_time(us, options_.time_unit); }

  void add_columns() {
    const std::vector<Row>& rows = averages_.rows;
    const size_t name_width = column_width(rows, options_.max_name_column_width, [](const Row& r) {
      return utf8_length(one_line(r.key));
    });
    const auto add = [&](std::string header) { model_.columns.push_back({std::move(header)}); };
    model_.columns.push_back({"Name", name_width});
    if (has_overload_names_) model_.columns.push_back({"Overload Name", name_width});
    for (const char* header :
         {"Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"})
      add(header);
    const std::string& device = averages_.device_label;
    if (has_device_time_) {
      add("Self " + device);
      add("Self " + device + " %");
      add(device + " total");
      add(device + " time avg");
    }
    if (averages_.profile_memory) {
      add("CPU Mem");
      add("Self CPU Mem");
      if (has_device_memory_) {
        add(device + " Mem");
        add("Self " + device + " Mem");
      }
    }
    add("# of Calls");
    if (has_node_ids()) add("Node ID");
    if (has_shapes_) {
      shapes_width_ = column_width(rows, options_.max_shapes_column_width,
                                   [](const Row& r) { return utf8_length(r.input_shapes); });
      model_.columns.push_back({"Input Shapes", shapes_width_});
    }
    if (model_.has_stack) {
      source_width_ = column_width(rows, options_.max_src_column_width, [](const Row& r) {
        size_t longest = 0;
        for (const std::string& frame : r.stack) longest = std::max(longest, utf8_length(frame));
        return longest;
      });
      model_.columns.push_back({"Source Location", source_width_, true});
    }
    if (model_.has_flops) add("Total " + scale_.unit);
  }

  bool has_node_ids() const {
    return std::any_of(averages_.rows.begin(), averages_.rows.end(),
                       [](const Row& r) { return r.node_id != -1; });
  }

  std::vector<std::string> cells(const Row& row) const {
    std::vector<std::string> out = {cut_name(one_line(row.key), options_.max_name_column_width)};
    if (has_overload_names_)
      out.push_back(cut_name(one_line(row.overload_name), options_.max_name_column_width));
    const double self_cpu_us = to_us(row.self_cpu_time_total_ns);
    const double cpu_total_us = to_us(row.cpu_time_total_ns);
    out.push_back(table_share(self_cpu_us, total_cpu_us_));
    out.push_back(time(self_cpu_us));
    out.push_back(row.is_async ? "0" : table_share(cpu_total_us, total_cpu_us_));
    out.push_back(time(cpu_total_us));
    out.push_back(time(row.cpu_time_avg_us()));
    if (has_device_time_) {
      const double self_device_us = to_us(row.self_device_time_total_ns);
      out.push_back(time(self_device_us));
      out.push_back(table_share(self_device_us, total_device_us_));
      out.push_back(time(to_us(row.device_time_total_ns)));
      out.push_back(time(row.device_time_avg_us()));
    }
    if (averages_.profile_memory) {
      out.push_back(table_memory(row.cpu_memory_bytes));
      out.push_back(table_memory(row.self_cpu_memory_bytes));
      if (has_device_memory_) {
        out.push_back(table_memory(row.device_memory_bytes));
        out.push_back(table_memory(row.self_device_memory_bytes));
      }
    }
    out.push_back(std::to_string(row.count));
    if (has_node_ids()) out.push_back(std::to_string(row.node_id));
    if (has_shapes_) out.emplace_back(utf8_prefix(row.input_shapes, shapes_width_));
    if (model_.has_stack)
      out.push_back(row.stack.empty() ? "" : cut_path(one_line(row.stack[0]), source_width_));
    if (model_.has_flops) out.push_back(table_flops(row.flops, scale_));
    return out;
  }

  const KeyAverages& averages_;
  const TableOptions& options_;
  TableModel model_;
  bool has_device_time_ = false;
  bool has_device_memory_ = false;
  bool has_overload_names_ = false;
  bool has_shapes_ = false;
  uint64_t smallest_flops_ = 0;
  FlopsScale scale_;
  double total_cpu_us_ = 0;
  double total_device_us_ = 0;
  size_t shapes_width_ = 0;
  size_t source_width_ = 0;
};

}  // namespace

TableModel table_model(const KeyAverages& averages, const TableOptions& options) {
  return ModelBuilder(averages, options).build();
}

}  // namespace epilogue::trace
