// SPDX-License-Identifier: Apache-2.0
// Field numbers are those of Perfetto's protos/perfetto/trace/trace_packet.proto and what it
// includes; a field that is not named here is passed over.
#include "trace/perfetto/packets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trace/perfetto/wire.h"

namespace epilogue::trace {
namespace {

enum class SliceMark : uint8_t { begin, end };

// One beginning or end of a slice on a track, in the order of the file.
struct Mark {
  int64_t ts_ns = 0;
  uint32_t slice = 0;  // of a beginning
  SliceMark kind = SliceMark::begin;
};

// --- Which end is whose -------------------------------------------------------------------------

using Marks = std::vector<Mark>;

void close(std::vector<PerfettoSlice>& slices, uint32_t slice, int64_t end_ns) {
  slices[slice].dur_ns = std::max<int64_t>(end_ns - slices[slice].ts_ns, 0);
}

// PyTorch's encoder writes a run of beginnings and then, in the same order, their ends.
bool pair_runs(const Marks& marks, std::vector<PerfettoSlice>& slices) {
  std::vector<std::pair<uint32_t, int64_t>> pairs;
  for (size_t i = 0; i < marks.size();) {
    size_t middle = i;
    while (middle < marks.size() && marks[middle].kind == SliceMark::begin) ++middle;
    size_t end = middle;
    while (end < marks.size() && marks[end].kind == SliceMark::end) ++end;
    if (middle - i != end - middle) return false;
    for (size_t j = i; j < middle; ++j) {
      const int64_t end_ns = marks[middle + j - i].ts_ns;
      if (end_ns < marks[j].ts_ns) return false;
      pairs.emplace_back(marks[j].slice, end_ns);
    }
    i = end;
  }
  for (const auto& [slice, end_ns] : pairs) close(slices, slice, end_ns);
  return true;
}

// An end is that of the slice that began last.
void pair_by_stack(const Marks& marks, std::vector<PerfettoSlice>& slices) {
  std::vector<uint32_t> open;
  for (const Mark& mark : marks) {
    if (mark.kind == SliceMark::begin) {
      open.push_back(mark.slice);
    } else if (!open.empty()) {
      close(slices, open.back(), mark.ts_ns);
      open.pop_back();
    }
  }
}

void pair_marks(Marks marks, std::vector<PerfettoSlice>& slices) {
  if (std::ranges::is_sorted(marks, {}, &Mark::ts_ns)) {
    pair_by_stack(marks, slices);
  } else if (!pair_runs(marks, slices)) {
    std::ranges::stable_sort(marks, {}, [](const Mark& mark) {
      return std::pair(mark.ts_ns, mark.kind == SliceMark::begin);
    });
    pair_by_stack(marks, slices);
  }
}

// --- Packets ------------------------------------------------------------------------------------

// Shared by the packets of one sequence.
struct Sequence {
  uint32_t texts = 0;
  uint64_t default_track = 0;
  uint64_t default_clock = 0;
};

class PacketParser {
 public:
  PacketParser(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<PerfettoTrace> parse() {
    WireReader reader(bytes_);
    while (const std::optional<WireField> field = reader.next()) {
      at_ = reader.begin();
      if (field->number == 1 && field->is_bytes) add_packet(field->bytes);
      if (!fault_.empty()) return failure(fault_);
    }
    if (reader.is_broken()) {
      at_ = reader.begin();
      return failure("it is damaged there, or ends early");
    }
    if (trace_.slices.empty())
      return Failure{FailureCode::not_a_trace, expected("one without slices")};
    for (auto& [track, marks] : marks_) pair_marks(std::move(marks), trace_.slices);
    return std::move(trace_);
  }

 private:
  std::string expected(const std::string& what) const {
    return fmt::format("{}: expected a Perfetto trace with slices, got {}", name_, what);
  }
  Failure failure(const std::string& reason) const {
    return {FailureCode::not_a_trace,
            expected(fmt::format("one that cannot be read at byte {}: {}", at_, reason))};
  }

  // Calls visit(field) for each field of a message; a damaged one is a fault.
  template <class Visit>
  void each(std::string_view message, Visit visit) {
    WireReader reader(message);
    while (const std::optional<WireField> field = reader.next()) visit(*field);
    if (reader.is_broken()) fault_ = "a message in it is damaged";
  }

  void add_packet(std::string_view packet) {
    uint64_t id = 0;
    uint64_t flags = 0;
    uint64_t clock = 0;
    int64_t ts_ns = 0;
    std::string_view interned, event, stage, track, clocks, defaults;
    each(packet, [&](const WireField& field) {
      switch (field.number) {
        case 8: ts_ns = field.whole(); break;
        case 10: id = field.value; break;
        case 13: flags |= field.value; break;
        case 41: flags |= field.value != 0 ? 1 : 0; break;  // as flag 1, of older writers
        case 58: clock = field.value; break;
        case 6: clocks = field.bytes; break;
        case 11: event = field.bytes; break;
        case 12: interned = field.bytes; break;
        case 50: fault_ = "packets in it are compressed: traceconv decompresses them"; break;
        case 53: stage = field.bytes; break;
        case 59: defaults = field.bytes; break;
        case 60: track = field.bytes; break;
        default: break;
      }
    });
    if (!clocks.empty()) add_clocks(clocks);
    if (!track.empty()) add_track(track);
    Sequence& sequence = sequence_of(id, (flags & 1) != 0);
    if (!defaults.empty()) add_defaults(defaults, sequence);
    if (!interned.empty()) add_interned(interned, trace_.texts[sequence.texts]);
    if (clock == 0) clock = sequence.default_clock;
    if (ts_ns < 0) fault_ = "a time in it is later than the year 2262";  // of 64 bits, unsigned
    // Those of a sequence count from moments of their own.
    if (clock >= 64 && (!event.empty() || !stage.empty()))
      fault_ = "its times are of a clock of one sequence, not of the system's";
    if (!event.empty()) add_event(event, ts_ns, sequence);
    if (!stage.empty()) add_stage(stage, ts_ns, sequence);
  }

  Sequence& sequence_of(uint64_t id, bool is_cleared) {
    const auto [place, is_new] = sequences_.try_emplace(id);
    if (is_new || is_cleared) {
      place->second.texts = static_cast<uint32_t>(trace_.texts.size());
      trace_.texts.emplace_back();
    }
    return place->second;
  }

  // The first snapshot says which moment of the wall clock is how much of the trace's.
  void add_clocks(std::string_view message) {
    if (trace_.base_ns != 0) return;
    each(message, [&](const WireField& field) {
      if (field.number != 1 || !field.is_bytes) return;
      uint64_t id = 0;
      int64_t at = 0;
      each(field.bytes, [&](const WireField& inner) {
        if (inner.number == 1) id = inner.value;
        if (inner.number == 2) at = inner.whole();
      });
      if (id == 1) trace_.base_ns = std::max<int64_t>(at, 0);
    });
  }

  void add_track(std::string_view message) {
    uint64_t uuid = 0;
    PerfettoTrack track;
    each(message, [&](const WireField& field) {
      if (field.number == 1) uuid = field.value;
      if (field.number == 5) track.parent = field.value;
      if (field.number == 2 || field.number == 10) track.name = field.bytes;
      if (field.number == 3 || field.number == 4)
        each(field.bytes, [&](const WireField& inner) {
          const bool is_thread = field.number == 4;
          if (inner.number == 1) track.pid = inner.whole();
          if (inner.number == 2 && is_thread) track.tid = inner.whole();
          if (inner.number == (is_thread ? 5U : 6U)) track.name = inner.bytes;
        });
    });
    trace_.tracks[uuid] = track;
  }

  void add_defaults(std::string_view message, Sequence& sequence) {
    each(message, [&](const WireField& field) {
      if (field.number == 58) sequence.default_clock = field.value;
      if (field.number != 11) return;
      each(field.bytes, [&](const WireField& inner) {
        if (inner.number == 11) sequence.default_track = inner.value;
      });
    });
  }

  void add_interned(std::string_view message, InternedTexts& texts) {
    each(message, [&](const WireField& field) {
      InternedTexts::Table* table = nullptr;
      switch (field.number) {
        case 1: table = &texts.categories; break;
        case 2: table = &texts.names; break;
        case 3: table = &texts.annotation_names; break;
        case 24: table = &texts.stages; break;
        case 29: table = &texts.annotation_texts; break;
        case 1000: table = &texts.kernels; break;
        case 1001: table = &texts.compute_args; break;
        default: return;
      }
      uint64_t id = 0;
      std::string_view text;
      const uint32_t text_field = field.number == 1000 ? 3 : 2;
      each(field.bytes, [&](const WireField& inner) {
        if (inner.number == 1) id = inner.value;
        if (inner.number == text_field) text = inner.bytes;
      });
      table->insert_or_assign(id, text);
    });
  }

  void add_event(std::string_view message, int64_t ts_ns, const Sequence& sequence) {
    uint64_t type = 0;
    uint64_t track = sequence.default_track;
    each(message, [&](const WireField& field) {
      if (field.number == 9) type = field.value;
      if (field.number == 11) track = field.value;
    });
    if (type == 1) {
      marks_[track].push_back(
          {ts_ns, static_cast<uint32_t>(trace_.slices.size()), SliceMark::begin});
      trace_.slices.push_back(
          {.ts_ns = ts_ns, .track = track, .texts = sequence.texts, .message = message});
    } else if (type == 2) {
      marks_[track].push_back({ts_ns, 0, SliceMark::end});
    }
  }

  void add_stage(std::string_view message, int64_t ts_ns, const Sequence& sequence) {
    int64_t dur_ns = 0;
    each(message, [&](const WireField& field) {
      if (field.number == 2) dur_ns = field.whole();
    });
    trace_.slices.push_back({.ts_ns = ts_ns,
                             .dur_ns = std::max<int64_t>(dur_ns, 0),
                             .texts = sequence.texts,
                             .is_stage = true,
                             .message = message});
  }

  std::string_view bytes_;
  const std::string& name_;
  size_t at_ = 0;
  std::string fault_;
  PerfettoTrace trace_;
  std::unordered_map<uint64_t, Sequence> sequences_;
  std::unordered_map<uint64_t, Marks> marks_;  // by track
};

}  // namespace

Result<PerfettoTrace> parse_perfetto(std::string_view bytes, const std::string& name) {
  return PacketParser(bytes, name).parse();
}

}  // namespace epilogue::trace
