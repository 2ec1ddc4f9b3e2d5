// SPDX-License-Identifier: Apache-2.0
// The answer of a memory snapshot as a document, and what its page draws.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "explain/render/document_sink.h"
#include "explain/render/documents.h"
#include "explain/render/html/page_data.h"
#include "explain/render/html/page_sink.h"
#include "explain/render/json_numbers.h"
#include "explain/sections/snapshot_sections.h"

namespace epilogue::trace {
namespace {

// More rectangles than a browser draws at once say nothing more: the largest by bytes and life are
// kept.
constexpr size_t kMaxLives = 20'000;

std::string what_was_read(const SnapshotAnswer& a) {
  return fmt::format("{}: {}, {}, {}.", a.report.path,
                     format_bytes(static_cast<double>(a.report.file_bytes)),
                     counted(static_cast<int64_t>(a.report.stacks), "stack", "stacks"),
                     counted(static_cast<int64_t>(a.report.frames), "frame", "frames"));
}

// Where segments lie in the map: one behind the other by address, each address once, however often
// it was taken. Gaps between segments are left out.
class AddressMap {
 public:
  explicit AddressMap(const std::vector<SnapshotSegmentLife>& lives) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const SnapshotSegmentLife& life : lives)
      if (life.bytes > 0)
        ranges.emplace_back(life.address, life.address + static_cast<uint64_t>(life.bytes));
    std::sort(ranges.begin(), ranges.end());
    uint64_t end = 0;
    for (const auto& [begin, until] : ranges) {
      if (starts_.empty() || begin > end) {
        starts_[begin] = bytes_;
        end = begin;
      }
      if (until > end) {
        bytes_ += until - end;
        end = until;
      }
    }
  }
  // Of an address within a segment.
  std::optional<uint64_t> place(uint64_t address) const {
    const auto after = starts_.upper_bound(address);
    if (after == starts_.begin()) return std::nullopt;
    const auto& [start, at] = *std::prev(after);
    const uint64_t end = after == starts_.end() ? bytes_ : after->second;
    const uint64_t found = at + (address - start);
    return found < end ? std::optional(found) : std::nullopt;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::map<uint64_t, uint64_t> starts_;
  uint64_t bytes_ = 0;
};

Json drawing_json(const DeviceMemoryReport& d) {
  Json curve = Json::array();
  for (const SnapshotPoint& p : d.curve)
    curve.push_back({p.time_us, p.allocated_bytes, p.reserved_bytes, p.categories});
  const AddressMap map(d.segment_lives);
  const auto places = static_cast<uint32_t>(d.events) + 1;
  const auto until = [places](uint32_t end) { return std::min(end, places); };
  std::vector<const SnapshotAllocation*> lives;
  lives.reserve(d.allocations.size());
  for (const SnapshotAllocation& a : d.allocations) lives.push_back(&a);
  if (lives.size() > kMaxLives) {
    const auto area = [&](const SnapshotAllocation* a) {
      return static_cast<double>(a->bytes) * static_cast<double>(until(a->end) - a->begin);
    };
    std::nth_element(lives.begin(), lives.begin() + kMaxLives, lives.end(),
                     [&](const auto* a, const auto* b) { return area(a) > area(b); });
    lives.resize(kMaxLives);
  }
  Json rectangles = Json::array();
  for (const SnapshotAllocation* a : lives)
    if (const auto at = map.place(a->address))
      rectangles.push_back(
          {a->begin, until(a->end), *at, a->bytes, static_cast<int>(a->category), a->label});
  Json segments = Json::array();
  for (const SnapshotSegmentLife& s : d.segment_lives)
    if (const auto at = map.place(s.address))
      segments.push_back({s.begin, until(s.end), *at, s.bytes});
  Json names = Json::array();
  for (const std::string_view name : kHolderCategoryNames) names.push_back(name);
  return {{"device", d.device},
          {"has_times", d.has_times},
          {"categories", std::move(names)},
          {"curve", std::move(curve)},
          {"lives", std::move(rectangles)},
          {"lives_left_out", d.allocations.size() - lives.size()},
          {"segments", std::move(segments)},
          {"labels", d.labels},
          {"places", places},
          {"peak_at", d.peak_at},
          {"map_bytes", map.bytes()}};
}

}  // namespace

Document snapshot_document(const SnapshotAnswer& answer, int top) {
  DocumentSink sink(top);
  sink.note(what_was_read(answer), Where::all);
  for (const std::string& note : answer.report.notes) sink.note(note, Where::all);
  if (answer.report.devices.empty()) sink.note("No device allocated anything.", Where::all);
  for (size_t i = 0; i < answer.report.devices.size(); ++i)
    for (const SnapshotSection* section : snapshot_sections()) section->show(answer, i, sink);
  Document document = sink.take();
  document.json = [&answer] {
    Json json = {{"schema_version", kJsonSchemaVersion}};
    json.update(snapshot_json(answer));
    return dump_json(json);
  };
  return document;
}

Json snapshot_page_data(const SnapshotAnswer& answer, const std::string& title) {
  PageSink sink;
  Json drawings = Json::array();
  for (size_t i = 0; i < answer.report.devices.size(); ++i) {
    for (const SnapshotSection* section : snapshot_sections()) {
      const std::string suffix = answer.report.devices.size() > 1 ? fmt::format("-{}", i) : "";
      sink.begin(std::string(section->id) + suffix, section->title);
      section->show(answer, i, sink);
    }
    drawings.push_back(drawing_json(answer.report.devices[i]));
  }
  Json json = snapshot_json(answer);
  Json left_out = Json::object();
  for (size_t i = 0; i < json["devices"].size(); ++i)
    for (auto& [key, value] : json["devices"][i].items())
      if (value.is_array() && value.size() > kMaxPageRows) {
        left_out[fmt::format("explanation.devices.{}.{}", i, key)] = value.size() - kMaxPageRows;
        value.erase(value.begin() + kMaxPageRows, value.end());
      }
  return {{"schema_version", kJsonSchemaVersion},
          {"title", title},
          {"subtitle", what_was_read(answer)},
          {"has_trace", false},
          {"snapshot", std::move(drawings)},
          {"explanation", std::move(json)},
          {"sections", sink.take()},
          {"kernels", Json::array()},
          {"left_out", std::move(left_out)}};
}

}  // namespace epilogue::trace
