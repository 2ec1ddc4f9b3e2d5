// SPDX-License-Identifier: Apache-2.0
// Makes the tables of a snapshot of its pickle, record by record. A dict is recognised by its keys
// when its items come: a frame, an event, a block, a segment. Lists of frames are stacks, each kept
// once; lists of events are ranges of rows. All else (settings, annotations, the lists of segments)
// is little, and is kept as it is in chains until the end.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "memory_snapshot/snapshot_data.h"

namespace epilogue::trace {
namespace {

// The texts that mean something. Each has the id of its place here, because they are interned
// first.
// clang-format off
enum class Word : uint32_t {
    empty, action, addr, address, size, stream, time_us, frames, device_free, pool_id,
    segment_pool_id, user_metadata, compile_context, category, name, filename, line, total_size,
    requested_size, real_size, segment_type, is_expandable, blocks, state, device, history,
    segments, device_traces, host_segments, host_traces, allocator_settings,
    external_annotations, stage, start, small, active_allocated, active_pending_free,
    active_awaiting_free, inactive, alloc, free_requested, free_completed, segment_alloc,
    segment_free, segment_map, segment_unmap, snapshot, oom, count
};
constexpr std::string_view kWords[] = {
    "", "action", "addr", "address", "size", "stream", "time_us", "frames", "device_free",
    "pool_id", "segment_pool_id", "user_metadata", "compile_context", "category", "name",
    "filename", "line", "total_size", "requested_size", "real_size", "segment_type",
    "is_expandable", "blocks", "state", "device", "history", "segments", "device_traces",
    "host_segments", "host_traces", "allocator_settings", "external_annotations", "stage",
    "START", "small", "active_allocated", "active_pending_free", "active_awaiting_free",
    "inactive", "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
    "segment_map", "segment_unmap", "snapshot", "oom"
};
// clang-format on
static_assert(std::size(kWords) == static_cast<size_t>(Word::count));

constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxSettings = 256;
constexpr size_t kMaxSettingText = 2000;
constexpr size_t kMaxSmall = 65535;  // streams and pools; more than that are one
constexpr size_t kMaxRows = std::numeric_limits<uint32_t>::max() - 1;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

// Ids by what they stand for: open addressing over ids alone; who asks knows how to compare.
class IdSet {
 public:
  template <class Same>
  std::optional<uint32_t> find(uint64_t hash, const Same& same) const {
    for (size_t i = hash & mask();; i = (i + 1) & mask()) {
      if (slots_[i].id == kEnd) return std::nullopt;
      if (slots_[i].hash == static_cast<uint32_t>(hash >> 32) && same(slots_[i].id))
        return slots_[i].id;
    }
  }
  // `rehash` gives the hash of an id.
  template <class Rehash>
  void insert(uint64_t hash, uint32_t id, const Rehash& rehash) {
    if (++size_ * 2 > slots_.size()) {
      std::vector<Slot> old(slots_.size() * 2);
      old.swap(slots_);
      for (const Slot& slot : old)
        if (slot.id != kEnd) place(rehash(slot.id), slot.id);
    }
    place(hash, id);
  }
  uint64_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t id = kEnd;
  };
  size_t mask() const { return slots_.size() - 1; }
  void place(uint64_t hash, uint32_t id) {
    size_t i = hash & mask();
    while (slots_[i].id != kEnd) i = (i + 1) & mask();
    slots_[i] = {static_cast<uint32_t>(hash >> 32), id};
  }
  std::vector<Slot> slots_ = std::vector<Slot>(1024);
  size_t size_ = 0;
};

// A dict, list or tuple that is no record: values one after the other, keys and values in turn.
struct Chain {
  uint32_t first = kEnd;
  uint32_t last = kEnd;
  uint32_t size = 0;
};
struct Link {
  PickleValue value;
  uint32_t next = kEnd;
};

// A row of blocks while it is read: it lies where the file has it, and moves behind its segment at
// the end.
struct OpenBlock {
  SnapshotBlock block;
  bool has_address = false;
  bool has_requested = false;
};
struct OpenSegment {
  SnapshotSegment segment;
  PickleValue blocks;
  bool has_device = false;
};

class SnapshotBuilder final : public PickleBuilder {
 public:
  using V = PickleValue;
  static constexpr V::Kind kChain = V::record_0;  // a dict or a list; a tuple is one too
  static constexpr V::Kind kFrame = V::record_1;
  static constexpr V::Kind kStack = V::record_2;
  static constexpr V::Kind kEvent = V::record_3;
  static constexpr V::Kind kEvents = V::record_4;
  static constexpr V::Kind kRow = V::record_5;  // even numbers: blocks; odd ones: segments

  explicit SnapshotBuilder(SnapshotData& data) : data_(data) {
    for (size_t i = 0; i < std::size(kWords); ++i) data_.texts.intern(kWords[i]);
    data_.frames.push_back({});
    categories_ = {""};
    pool_id(0, 0);
    small_id(stream_ids_, streams_, int64_t{0});
  }

  V set_items(V dict, std::span<const V> items) override {
    switch (dict.kind()) {
      case V::empty_dict: return made(items);
      case kChain: return extend(dict, items);
      case kEvent: set_event(data_.events[dict.id()], items); return dict;
      case kFrame: {
        SnapshotFrame frame = data_.frames[dict.id()];
        set_frame(frame, items);
        return V(kFrame, intern_frame(frame));
      }
      case kRow:
        if (dict.id() % 2 == 0)
          set_block(blocks_[dict.id() / 2], items);
        else
          set_segment(segments_[dict.id() / 2], items);
        return dict;
      default: throw PickleFault{"expected a dict that takes items"};
    }
  }

  V append(V list, std::span<const V> elements) override {
    const auto all = [&](V::Kind kind) {
      return std::all_of(elements.begin(), elements.end(), [&](V v) { return v.kind() == kind; });
    };
    switch (list.kind()) {
      case V::empty_list:
        if (elements.front().kind() == kFrame && all(kFrame))
          return V(kStack, intern_stack({}, elements));
        if (elements.front().kind() == kEvent) return add_events(new_events(), elements);
        return extend(V(kChain, new_chain()), elements);
      case kStack: {
        if (!all(kFrame)) throw PickleFault{"a list of frames with something else"};
        const std::span<const uint32_t> old = data_.stack(list.id());
        return V(kStack, intern_stack(std::vector<uint32_t>(old.begin(), old.end()), elements));
      }
      case kEvents: return add_events(list, elements);
      case kChain: return extend(list, elements);
      default: throw PickleFault{"expected a list that takes elements"};
    }
  }

  V make_tuple(std::span<const V> elements) override {
    if (elements.size() == 2 && is_small_integer(elements[0]) && is_small_integer(elements[1]))
      return V(V::tuple, pool_id(elements[0].number(), elements[1].number()));
    const V chain(kChain, new_chain());
    return elements.empty() ? chain : extend(chain, elements);
  }

  uint64_t held_bytes() const override {
    return data_.events.bytes() + data_.frames.bytes() +
           data_.stack_frames.capacity() * sizeof(uint32_t) +
           data_.stack_begin.capacity() * sizeof(uint32_t) + frame_ids_.bytes() +
           stack_ids_.bytes() + chains_.bytes() + links_.bytes() + blocks_.bytes() +
           segments_.bytes() + ranges_bytes_;
  }

  Result<MemorySnapshot> finish(V root, std::string_view name,
                                std::shared_ptr<const SnapshotData> data);

 private:
  static bool is_small_integer(V v) {
    return v.kind() == V::integer && v.number() >= std::numeric_limits<int32_t>::min() &&
           v.number() <= std::numeric_limits<int32_t>::max();
  }
  Word word(V v) const {
    return v.kind() == V::text && v.id() < static_cast<uint32_t>(Word::count)
               ? static_cast<Word>(v.id())
               : Word::count;
  }
  int64_t integer(V v) const { return data_.texts.integer(v); }
  // Sizes and times of hostile files must not overflow what is made of them.
  int64_t size(V v) const { return std::clamp<int64_t>(integer(v), 0, int64_t{1} << 48); }
  int64_t time(V v) const { return std::clamp<int64_t>(integer(v), 0, int64_t{1} << 60); }
  uint32_t text(V v) const { return v.kind() == V::text ? v.id() : 0; }

  // --- Chains -----------------------------------------------------------------------------------

  int64_t new_chain() {
    if (chains_.size() >= kMaxRows) throw PickleFault{"more than 4,294,967,294 containers"};
    chains_.push_back({});
    return static_cast<int64_t>(chains_.size()) - 1;
  }
  V extend(V chain, std::span<const V> values) {
    Chain& to = chains_[chain.id()];
    for (const V value : values) {
      if (links_.size() >= kMaxRows) throw PickleFault{"more than 4,294,967,294 values"};
      const auto link = static_cast<uint32_t>(links_.size());
      links_.push_back({value, kEnd});
      (to.first == kEnd ? to.first : links_[to.last].next) = link;
      to.last = link;
      ++to.size;
    }
    return chain;
  }
  template <class Body>
  void each(V chain, const Body& body) const {
    if (chain.kind() != kChain) return;
    for (uint32_t at = chains_[chain.id()].first; at != kEnd; at = links_[at].next)
      body(links_[at].value);
  }
  template <class Body>
  void each_item(V chain, const Body& body) const {
    std::optional<V> key;
    each(chain, [&](V value) {
      if (key) {
        body(*key, value);
        key.reset();
      } else {
        key = value;
      }
    });
  }
  V item(V dict, Word key) const {
    V found;
    each_item(dict, [&](V k, V value) {
      if (word(k) == key) found = value;
    });
    return found;
  }

  // --- Records ----------------------------------------------------------------------------------

  V made(std::span<const V> items) {
    bool has_action = false, has_file = false, has_name = false, has_blocks = false,
         has_state = false, has_real = false;
    for (size_t i = 0; i < items.size(); i += 2) {
      switch (word(items[i])) {
        case Word::action: has_action = true; break;
        case Word::filename: has_file = true; break;
        case Word::name: has_name = true; break;
        case Word::blocks: has_blocks = true; break;
        case Word::state: has_state = true; break;
        case Word::real_size: has_real = true; break;
        default: break;
      }
    }
    if (has_action) {
      if (data_.events.size() >= kMaxRows) throw PickleFault{"more than 4,294,967,294 events"};
      SnapshotEvent event;
      set_event(event, items);
      data_.events.push_back(event);
      return V(kEvent, static_cast<int64_t>(data_.events.size()) - 1);
    }
    if (has_file && has_name) {
      SnapshotFrame frame;
      set_frame(frame, items);
      return V(kFrame, intern_frame(frame));
    }
    if (has_blocks) {
      segments_.push_back({});
      const V row(kRow, 2 * (static_cast<int64_t>(segments_.size()) - 1) + 1);
      set_segment(segments_[segments_.size() - 1], items);
      return row;
    }
    if (has_state || has_real) {
      blocks_.push_back({});
      const V row(kRow, 2 * (static_cast<int64_t>(blocks_.size()) - 1));
      set_block(blocks_[blocks_.size() - 1], items);
      return row;
    }
    return extend(V(kChain, new_chain()), items);
  }

  void set_event(SnapshotEvent& event, std::span<const V> items) {
    for (size_t i = 0; i < items.size(); i += 2) {
      const V value = items[i + 1];
      switch (word(items[i])) {
        case Word::action: event.action = action_of(value); break;
        case Word::addr:
        case Word::device_free: event.address = static_cast<uint64_t>(integer(value)); break;
        case Word::size: event.bytes = size(value); break;
        case Word::stream: event.stream = stream_id(value); break;
        case Word::time_us: event.time_us = time(value); break;
        case Word::frames: event.stack = value.kind() == kStack ? value.id() : 0; break;
        case Word::pool_id: event.pool = pool_of(value); break;
        case Word::user_metadata:
        case Word::compile_context:
          if (const uint32_t id = text(value); id != 0) event.metadata = id;
          break;
        case Word::category: event.category = category_id(value); break;
        default: break;
      }
    }
  }

  SnapshotAction action_of(V value) const {
    const auto first = static_cast<uint32_t>(Word::alloc);
    const auto id = static_cast<uint32_t>(word(value));
    return id >= first && id <= static_cast<uint32_t>(Word::oom)
               ? static_cast<SnapshotAction>(id - first)
               : SnapshotAction::other;
  }

  void set_frame(SnapshotFrame& frame, std::span<const V> items) const {
    for (size_t i = 0; i < items.size(); i += 2) {
      const V value = items[i + 1];
      switch (word(items[i])) {
        case Word::name: frame.name = text(value); break;
        case Word::filename: frame.file = text(value); break;
        case Word::line: frame.line = static_cast<int32_t>(integer(value)); break;
        default: break;
      }
    }
  }

  void set_block(OpenBlock& open, std::span<const V> items) {
    SnapshotBlock& block = open.block;
    for (size_t i = 0; i < items.size(); i += 2) {
      const V value = items[i + 1];
      switch (word(items[i])) {
        case Word::addr:
        case Word::address:
          block.address = static_cast<uint64_t>(integer(value));
          open.has_address = true;
          break;
        case Word::size: block.bytes = size(value); break;
        case Word::real_size:
        case Word::requested_size:
          block.requested_bytes = size(value);
          open.has_requested = true;
          break;
        case Word::frames: block.stack = value.kind() == kStack ? value.id() : 0; break;
        case Word::state:
          block.state = word(value) == Word::active_allocated ? BlockState::allocated
                        : word(value) == Word::active_pending_free ||
                                word(value) == Word::active_awaiting_free
                            ? BlockState::pending_free
                            : BlockState::inactive;
          break;
        case Word::history: take_history(open, value); break;
        default: break;
      }
    }
  }

  // Until PyTorch 2.0 a block had what was in it, the present first.
  void take_history(OpenBlock& open, V history) const {
    bool is_first = true;
    each(history, [&](V entry) {
      if (!is_first || entry.kind() != kRow || entry.id() % 2 != 0) return;
      is_first = false;
      const OpenBlock& past = blocks_[entry.id() / 2];
      open.block.stack = past.block.stack;
      open.block.requested_bytes = past.block.requested_bytes;
      open.has_requested = past.has_requested;
    });
  }

  void set_segment(OpenSegment& open, std::span<const V> items) {
    SnapshotSegment& segment = open.segment;
    for (size_t i = 0; i < items.size(); i += 2) {
      const V value = items[i + 1];
      switch (word(items[i])) {
        case Word::address: segment.address = static_cast<uint64_t>(integer(value)); break;
        case Word::total_size: segment.bytes = size(value); break;
        case Word::device:
          segment.device = static_cast<int32_t>(integer(value));
          open.has_device = true;
          break;
        case Word::stream: segment.stream = stream_id(value); break;
        case Word::segment_type: segment.is_large = word(value) != Word::small; break;
        case Word::segment_pool_id: segment.pool = pool_of(value); break;
        case Word::is_expandable: segment.is_expandable = integer(value) != 0; break;
        case Word::frames: segment.stack = value.kind() == kStack ? value.id() : 0; break;
        case Word::blocks: open.blocks = value; break;
        default: break;
      }
    }
  }

  // --- What is kept once ------------------------------------------------------------------------

  static uint64_t frame_hash(const SnapshotFrame& f) {
    return mixed(mixed(f.name, f.file), static_cast<uint32_t>(f.line));
  }
  uint32_t intern_frame(const SnapshotFrame& frame) {
    const uint64_t hash = frame_hash(frame);
    if (const auto id = frame_ids_.find(hash, [&](uint32_t i) { return data_.frames[i] == frame; }))
      return *id;
    if (data_.frames.size() >= kMaxRows) throw PickleFault{"more than 4,294,967,294 frames"};
    const auto id = static_cast<uint32_t>(data_.frames.size());
    data_.frames.push_back(frame);
    frame_ids_.insert(hash, id, [&](uint32_t i) { return frame_hash(data_.frames[i]); });
    return id;
  }

  static uint64_t stack_hash(std::span<const uint32_t> frames) {
    uint64_t hash = frames.size();
    for (const uint32_t frame : frames) hash = mixed(hash, frame);
    return hash;
  }
  uint32_t intern_stack(std::vector<uint32_t> frames, std::span<const V> more) {
    for (const V frame : more) frames.push_back(frame.id());
    return intern_stack(frames);
  }
  uint32_t intern_stack(std::span<const uint32_t> frames) {
    const uint64_t hash = stack_hash(frames);
    const auto same = [&](uint32_t i) { return std::ranges::equal(data_.stack(i), frames); };
    if (const auto id = stack_ids_.find(hash, same)) return *id;
    if (data_.stack_frames.size() + frames.size() >= kMaxRows)
      throw PickleFault{"more than 4,294,967,294 frames of stacks"};
    data_.stack_frames.insert(data_.stack_frames.end(), frames.begin(), frames.end());
    const auto id = static_cast<uint32_t>(data_.stack_begin.size()) - 1;
    data_.stack_begin.push_back(static_cast<uint32_t>(data_.stack_frames.size()));
    stack_ids_.insert(hash, id, [&](uint32_t i) { return stack_hash(data_.stack(i)); });
    return id;
  }

  template <class T>
  static uint16_t small_id(std::map<T, uint16_t>& ids, std::vector<T>& list, T value) {
    const auto found = ids.find(value);
    if (found != ids.end()) return found->second;
    if (list.size() == kMaxSmall) return static_cast<uint16_t>(kMaxSmall - 1);
    ids[value] = static_cast<uint16_t>(list.size());
    list.push_back(value);
    return static_cast<uint16_t>(list.size() - 1);
  }
  uint16_t stream_id(V value) {
    const int64_t stream = integer(value);
    if (streams_[last_stream_] == stream) return last_stream_;
    return last_stream_ = small_id(stream_ids_, streams_, stream);
  }
  uint16_t pool_id(int64_t a, int64_t b) { return small_id(pool_ids_, pools_, std::pair(a, b)); }
  uint16_t pool_of(V value) {
    if (value.kind() == V::tuple) return static_cast<uint16_t>(value.id());
    std::vector<int64_t> parts;  // a list, of what was JSON once
    each(value, [&](V part) { parts.push_back(integer(part)); });
    return parts.size() == 2 ? pool_id(parts[0], parts[1]) : pool_id(0, 0);
  }
  uint8_t category_id(V value) {
    const std::string name(value.kind() == V::text ? data_.texts[value.id()] : "");
    const auto found = std::find(categories_.begin(), categories_.end(), name);
    if (found == categories_.end() && categories_.size() < 255) {
      categories_.push_back(name);
      return static_cast<uint8_t>(categories_.size() - 1);
    }
    return found == categories_.end() ? 0 : static_cast<uint8_t>(found - categories_.begin());
  }

  // --- Lists of events --------------------------------------------------------------------------

  V new_events() {
    event_lists_.push_back({});
    ranges_bytes_ += 64;
    return V(kEvents, static_cast<int64_t>(event_lists_.size()) - 1);
  }
  V add_events(V list, std::span<const V> events) {
    SnapshotTrace& to = event_lists_[list.id()];
    for (const V event : events) {
      if (event.kind() != kEvent) {
        ++skipped_;
        continue;
      }
      ++to.events;
      if (!to.ranges.empty() && to.ranges.back().first + to.ranges.back().second == event.id()) {
        ++to.ranges.back().second;
      } else {
        to.ranges.emplace_back(event.id(), 1);
        ranges_bytes_ += 2 * sizeof(to.ranges[0]);
      }
    }
    return list;
  }

  // --- The end ----------------------------------------------------------------------------------

  void add_traces(V lists, std::optional<int32_t> device, MemorySnapshot& out) {
    int32_t number = 0;
    const auto add = [&](V list) {
      // Each list once: a file may name one a million times.
      if (list.kind() == kEvents && !event_lists_[list.id()].ranges.empty()) {
        SnapshotTrace trace = std::exchange(event_lists_[list.id()], {});
        trace.device = device.value_or(number);
        out.traces.push_back(std::move(trace));
      }
      ++number;
    };
    if (lists.kind() == kEvents)
      add(lists);  // of one device, without a list around it
    else
      each(lists, add);
  }

  void add_segments(V list, std::optional<int32_t> device, MemorySnapshot& out) {
    each(list, [&](V value) {
      if (value.kind() != kRow || value.id() % 2 == 0) {
        ++skipped_;
        return;
      }
      OpenSegment& open = segments_[value.id() / 2];
      // Each segment and each list of blocks once, as above.
      const V blocks = std::exchange(open.blocks, V());
      if (blocks.kind() == V::none ||
          (blocks.kind() == kChain && !taken_chains_.insert(blocks.id()).second)) {
        ++skipped_;
        return;
      }
      SnapshotSegment segment = open.segment;
      if (device) segment.device = *device;
      segment.first_block = static_cast<uint32_t>(out.blocks.size());
      uint64_t address = segment.address;
      each(blocks, [&](V entry) {
        if (entry.kind() != kRow || entry.id() % 2 != 0) {
          ++skipped_;
          return;
        }
        const OpenBlock& from = blocks_[entry.id() / 2];
        SnapshotBlock block = from.block;
        if (!from.has_address) block.address = address;
        if (!from.has_requested) block.requested_bytes = block.bytes;
        address = block.address + static_cast<uint64_t>(block.bytes);
        out.blocks.push_back(block);
      });
      segment.blocks = static_cast<uint32_t>(out.blocks.size()) - segment.first_block;
      out.segments.push_back(segment);
    });
  }

  std::string shown(V value) const {
    switch (value.kind()) {
      case V::none: return "None";
      case V::boolean: return value.number() != 0 ? "True" : "False";
      case V::integer:
      case V::wide: return std::to_string(integer(value));
      case V::real: return fmt::format("{}", data_.texts.reals[value.id()]);
      case V::text: return std::string(data_.texts[value.id()].substr(0, kMaxSettingText));
      case kChain: {
        std::string all;  // a dict of numbers: roundup_power2_divisions
        size_t items = 0;
        each_item(value, [&](V key, V inner) {
          if (++items > 64 || inner.kind() == kChain) return;
          all += fmt::format("{}{}:{}", all.empty() ? "" : ",", shown(key), shown(inner));
        });
        return all;
      }
      default: return "";
    }
  }

  void add_annotations(V list, MemorySnapshot& out) const {
    each(list, [&](V entry) {
      SnapshotAnnotation a;
      each_item(entry, [&](V key, V value) {
        switch (word(key)) {
          case Word::name: a.name = text(value); break;
          case Word::device: a.device = static_cast<int32_t>(integer(value)); break;
          case Word::time_us: a.time_us = time(value); break;
          case Word::stage: a.is_start = word(value) == Word::start; break;
          default: break;
        }
      });
      if (a.name != 0) out.annotations.push_back(a);
    });
  }

  SnapshotData& data_;
  IdSet frame_ids_;
  IdSet stack_ids_;
  Chunked<Chain> chains_;
  Chunked<Link> links_;
  Chunked<OpenBlock> blocks_;
  Chunked<OpenSegment> segments_;
  std::vector<SnapshotTrace> event_lists_;
  uint64_t ranges_bytes_ = 0;
  std::map<int64_t, uint16_t> stream_ids_;
  std::vector<int64_t> streams_;
  uint16_t last_stream_ = 0;
  std::map<std::pair<int64_t, int64_t>, uint16_t> pool_ids_;
  std::vector<std::pair<int64_t, int64_t>> pools_;
  std::vector<std::string> categories_;
  std::set<uint32_t> taken_chains_;
  int64_t skipped_ = 0;
};

Result<MemorySnapshot> SnapshotBuilder::finish(V root, std::string_view name,
                                               std::shared_ptr<const SnapshotData> data) {
  MemorySnapshot out(std::move(data));
  out.path = name;
  bool is_snapshot = false;
  if (root.kind() == kChain) {
    const V first = chains_[root.id()].size > 0 ? links_[chains_[root.id()].first].value : V();
    if (first.kind() == kRow) {  // torch.cuda.memory_snapshot(): the segments alone
      add_segments(root, std::nullopt, out);
      is_snapshot = true;
    } else if (first.kind() == V::text) {
      each_item(root, [&](V key, V value) {
        switch (word(key)) {
          case Word::segments:
            add_segments(value, std::nullopt, out);
            is_snapshot = true;
            break;
          case Word::host_segments: add_segments(value, kHostDevice, out); break;
          case Word::device_traces:
            add_traces(value, std::nullopt, out);
            is_snapshot = true;
            break;
          case Word::host_traces: add_traces(value, kHostDevice, out); break;
          case Word::external_annotations: add_annotations(value, out); break;
          case Word::allocator_settings:
            each_item(value, [&](V k, V v) {
              if (out.settings.size() < kMaxSettings) out.settings.emplace_back(shown(k), shown(v));
            });
            break;
          default: break;
        }
      });
    }
  } else if (root.kind() == V::empty_list) {
    is_snapshot = true;  // of a process that never allocated
  }
  if (!is_snapshot)
    return Failure{FailureCode::not_a_trace,
                   fmt::format("{}: a pickle, but no memory snapshot: expected a dict with "
                               "'segments' and 'device_traces', as "
                               "torch.cuda.memory._dump_snapshot() writes it",
                               name)};
  out.streams = std::move(streams_);
  out.pools = std::move(pools_);
  out.categories = std::move(categories_);
  out.skipped_entries = skipped_;
  return out;
}

Result<MemorySnapshot> read_snapshot_from(ByteSource& source, std::string_view name,
                                          const std::function<void(int64_t, int64_t)>& progress) {
  auto data = std::make_shared<SnapshotData>();
  SnapshotBuilder builder(*data);
  const Result<PickleValue> root = read_pickle(source, name, data->texts, builder, progress);
  if (!root) {
    const StreamFaults faults = source.faults();
    if (source.is_gzip() && (faults.is_truncated || faults.has_bad_checksum))
      return Failure{root.failure().code,
                     root.failure().message + " (its gzip stream is damaged or cut)"};
    return root.failure();
  }
  Result<MemorySnapshot> snapshot = builder.finish(root.value(), name, data);
  if (snapshot) snapshot.value().file_bytes = source.file_bytes_read();
  return snapshot;
}

}  // namespace

MemorySnapshot::MemorySnapshot(std::shared_ptr<const SnapshotData> data) : data_(std::move(data)) {}
std::string_view MemorySnapshot::text(uint32_t id) const { return data_->texts[id]; }
std::span<const uint32_t> MemorySnapshot::stack(uint32_t id) const { return data_->stack(id); }
const SnapshotFrame& MemorySnapshot::frame(uint32_t id) const { return data_->frames[id]; }
const SnapshotEvent& MemorySnapshot::event(uint32_t id) const { return data_->events[id]; }
uint32_t MemorySnapshot::event_count() const { return static_cast<uint32_t>(data_->events.size()); }
uint32_t MemorySnapshot::frame_count() const { return static_cast<uint32_t>(data_->frames.size()); }
uint32_t MemorySnapshot::stack_count() const {
  return static_cast<uint32_t>(data_->stack_begin.size()) - 1;
}
uint32_t MemorySnapshot::text_count() const {
  return static_cast<uint32_t>(data_->texts.texts.size());
}
uint64_t MemorySnapshot::held_bytes() const {
  return data_->events.bytes() + data_->frames.bytes() + data_->texts.text_bytes +
         (data_->stack_frames.capacity() + data_->stack_begin.capacity()) * sizeof(uint32_t) +
         blocks.capacity() * sizeof(SnapshotBlock) + segments.capacity() * sizeof(SnapshotSegment);
}

Result<MemorySnapshot> read_memory_snapshot(const std::string& path,
                                            const std::function<void(int64_t, int64_t)>& progress) {
  Result<std::unique_ptr<ByteSource>> source = open_source(path);
  if (!source) return source.failure();
  return read_snapshot_from(*source.value(), path == "-" ? "stdin" : path, progress);
}

Result<MemorySnapshot> read_memory_snapshot_bytes(
    std::string_view bytes, std::string_view name,
    const std::function<void(int64_t, int64_t)>& progress) {
  const std::unique_ptr<ByteSource> source = memory_source(bytes);
  return read_snapshot_from(*source, name, progress);
}

}  // namespace epilogue::trace
