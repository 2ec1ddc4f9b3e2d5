// SPDX-License-Identifier: Apache-2.0
#include "explain/render/html/page_timeline.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "explain/render/html/timeline_rows.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

// An op over hundreds of parameters has that many shapes; the page shows the first.
constexpr size_t kMaxInputsChars = 600;

void append_varint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void append_zigzag(int64_t value, std::string& out) {
  append_varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63), out);
}

// Of times that a broken file may put anywhere.
int64_t wrapping_difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// Distinct texts in order of first use.
class Numbering {
 public:
  uint32_t of(const std::string& text) {
    const auto [at, is_new] = ids_.emplace(text, static_cast<uint32_t>(ids_.size()));
    if (is_new) texts_.push_back(&at->first);
    return at->second;
  }
  Json json() const {
    Json list = Json::array();
    for (const std::string* text : texts_) list.push_back(*text);
    return list;
  }

 private:
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_: its nodes stay where they are
};

std::string input_text(const OpInput& input) {
  if (input.is_list) {
    std::string text = "list of " + std::to_string(input.list.size());
    if (!input.list.empty()) text += ", first " + input_text(input.list.front());
    return text;
  }
  if (input.dims.empty() && !input.concrete.empty()) return input.concrete;
  if (input.dims.empty() && input.type.empty()) return "-";
  return fmt::format("[{}]{}{}", fmt::join(input.dims, ", "), input.type.empty() ? "" : " ",
                     input.type);
}

// A line per tensor; what stands between tensors on one line.
std::string inputs_text(std::span<const OpInput> inputs) {
  std::string text;
  bool was_tensor = true;
  for (const OpInput& input : inputs) {
    if (text.size() > kMaxInputsChars) return text + "\n...";
    const bool is_tensor = input.is_list || !input.dims.empty();
    if (!text.empty()) text += is_tensor || was_tensor ? "\n" : ", ";
    text += input_text(input);
    was_tensor = is_tensor;
  }
  return text;
}

// What the page shows of a kernel or copy when it is selected: "key\tvalue" lines.
std::string kernel_text(const KernelArgs& k, Category category) {
  std::string text;
  const auto add = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{}\t{}\n", key, value);
  };
  if (category == Category::kernel && k.has_grid) {
    add("grid", fmt::format("[{}]", fmt::join(k.grid, ", ")));
    add("block", fmt::format("[{}]", fmt::join(k.block, ", ")));
  }
  if (k.registers_per_thread > 0)
    add("registers per thread", std::to_string(k.registers_per_thread));
  if (k.shared_memory_bytes > 0) add("shared memory", fmt::format("{} B", k.shared_memory_bytes));
  if (k.blocks_per_sm >= 0) add("blocks per SM", fmt::format("{:.2f}", k.blocks_per_sm));
  if (k.warps_per_sm >= 0) add("warps per SM", fmt::format("{:.2f}", k.warps_per_sm));
  if (k.est_occupancy_pct >= 0) add("recorded occupancy", fmt::format("{} %", k.est_occupancy_pct));
  if (k.graph_id > 0) add("graph", std::to_string(k.graph_id));
  if (k.bytes >= 0) add("bytes", std::to_string(k.bytes));
  if (k.threads > 0) add("threads", std::to_string(k.threads));
  return text;
}

class Writer {
 public:
  Writer(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

  PageTimeline write(const TimelineRows& rows, int64_t origin_ns) {
    number_events(rows);
    number_host_lanes(rows);
    PageTimeline page;
    Json lanes = Json::array();
    for (const TimelineLane& lane : rows.lanes) {
      Json sizes = Json::array();
      for (const auto& row : lane.rows) {
        add_row(row, origin_ns);
        sizes.push_back(row.size());
      }
      lanes.push_back({{"name", lane.name},
                       {"is_device", lane.kind == LaneKind::device},
                       {"calls_lane", calls_lane(lane)},
                       {"rows", sizes}});
    }
    page.columns = category_ + name_ + detail_ + op_ + launch_ + dur_ + start_;
    page.header = {{"origin_us", to_us(origin_ns)}, {"events", events_},
                   {"left_out", rows.left_out},     {"lanes", std::move(lanes)},
                   {"strings", names_.json()},      {"details", details_.json()}};
    return page;
  }

 private:
  void number_host_lanes(const TimelineRows& rows) {
    for (size_t i = 0; i < rows.lanes.size(); ++i)
      if (rows.lanes[i].kind == LaneKind::host)
        host_lanes_.try_emplace({rows.lanes[i].pid, rows.lanes[i].tid}, i);
  }

  // Where the launch calls of the lane's thread lie, as a position in rows.lanes; null: nowhere.
  Json calls_lane(const TimelineLane& lane) const {
    const auto same = host_lanes_.find({lane.pid, lane.tid});
    if (lane.kind == LaneKind::device || same == host_lanes_.end()) return nullptr;
    return same->second;
  }

  void number_events(const TimelineRows& rows) {
    position_.assign(trace_.events.size(), 0);
    for (const TimelineLane& lane : rows.lanes)
      for (const auto& row : lane.rows)
        for (const uint32_t i : row) position_[i] = ++events_;
    details_.of("");  // detail 0: nothing to show
  }

  void add_row(const std::vector<uint32_t>& row, int64_t origin_ns) {
    int64_t before_ns = origin_ns;
    for (const uint32_t i : row) {
      const Event& event = trace_.events[i];
      append_varint(static_cast<uint64_t>(event.category), category_);
      append_varint(name_of(event), name_);
      append_varint(detail_of(event), detail_);
      const bool is_work = is_device_category(event.category);
      append_varint(is_work ? linked(links_.op, i) : 0, op_);
      append_varint(is_work ? linked(links_.launch, i) : 0, launch_);
      append_varint(static_cast<uint64_t>(std::max<int64_t>(event.dur_ns, 0)), dur_);
      append_zigzag(wrapping_difference(event.ts_ns, before_ns), start_);
      before_ns = event.end_ns();
    }
  }

  uint64_t linked(const std::vector<uint32_t>& link, uint32_t event) const {
    return event < link.size() && link[event] != kNone ? position_[link[event]] : 0;
  }

  uint32_t name_of(const Event& event) {
    const auto [at, is_new] = name_ids_.emplace(event.name, 0);
    if (is_new) at->second = names_.of(std::string(trace_.name(event)));
    return at->second;
  }

  uint32_t detail_of(const Event& event) {
    if (const KernelArgs* kernel = trace_.kernel_args(event))
      return details_.of(kernel_text(*kernel, event.category));
    const OpArgs* op = trace_.op_args(event);
    if (op == nullptr || op->inputs == kNone) return 0;
    const auto [at, is_new] = input_ids_.emplace(op->inputs, 0);
    if (is_new) at->second = details_.of("inputs\t" + inputs_text(trace_.inputs[op->inputs]));
    return at->second;
  }

  const Trace& trace_;
  const Links& links_;
  std::vector<uint32_t> position_;  // of each event, counted from 1; 0: not drawn
  std::map<std::pair<int64_t, int64_t>, size_t> host_lanes_;  // position by pid and tid
  uint32_t events_ = 0;
  Numbering names_;
  Numbering details_;
  std::unordered_map<StringId, uint32_t> name_ids_;
  std::unordered_map<uint32_t, uint32_t> input_ids_;  // of the inputs pool -> detail
  std::string category_, name_, detail_, op_, launch_, dur_, start_;
};

}  // namespace

PageTimeline page_timeline(const Trace& trace, const Links& links, int64_t origin_ns,
                           size_t max_events) {
  return Writer(trace, links).write(timeline_rows(trace, max_events), origin_ns);
}

}  // namespace epilogue::trace
