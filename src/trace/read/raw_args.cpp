// SPDX-License-Identifier: Apache-2.0
#include "trace/read/raw_args.h"

#include "trace/read/same_text.h"
#include "trace/read/string_table.h"

namespace epilogue::trace {
namespace {

static_assert(kArgKeys <= 64, "one bit each");

struct Name {
  std::string_view text;
  ArgKey key = ArgKey::other;
};

constexpr Name kNames[] = {
    {"External id", ArgKey::external_id},
    {"external id", ArgKey::external_id},
    {"correlation", ArgKey::correlation},
    {"correlation_id", ArgKey::correlation},
    {"Record function id", ArgKey::record_function_id},
    {"Ev Idx", ArgKey::ev_idx},
    {"Profiler Event Index", ArgKey::ev_idx},
    {"Sequence number", ArgKey::sequence_number},
    {"Fwd thread id", ArgKey::fwd_thread_id},
    {"Input Dims", ArgKey::input_dims},
    {"Input dims", ArgKey::input_dims},
    {"Input type", ArgKey::input_type},
    {"Input Strides", ArgKey::input_strides},
    {"Concrete Inputs", ArgKey::concrete_inputs},
    {"Call stack", ArgKey::call_stack},
    {"Module Hierarchy", ArgKey::module_hierarchy},
    {"Overload name", ArgKey::overload_name},
    {"Async", ArgKey::async},
    {"queued", ArgKey::queued},
    {"device", ArgKey::device},
    {"context", ArgKey::context},
    {"stream", ArgKey::stream},
    {"registers per thread", ArgKey::registers_per_thread},
    {"shared memory", ArgKey::shared_memory},
    {"shared size", ArgKey::shared_memory},
    {"blocks per SM", ArgKey::blocks_per_sm},
    {"warps per SM", ArgKey::warps_per_sm},
    {"grid", ArgKey::grid},
    {"grid dim", ArgKey::grid},
    {"block", ArgKey::block},
    {"block dim", ArgKey::block},
    {"est. achieved occupancy %", ArgKey::occupancy},
    {"theoretical occupancy %", ArgKey::occupancy},
    {"graph id", ArgKey::graph_id},
    {"graph node id", ArgKey::graph_node_id},
    {"bytes", ArgKey::bytes},
    {"size", ArgKey::bytes},
    {"flops", ArgKey::flops},
    {"threads", ArgKey::threads},
    {"fused ops", ArgKey::fused_ops},
    {"unfused bytes", ArgKey::unfused_bytes},
    {"cbid", ArgKey::cbid},
    {"cid", ArgKey::cbid},
    {"wait_on_stream", ArgKey::wait_on_stream},
    {"wait_on_cuda_event_record_corr_id", ArgKey::wait_on_record},
    {"kernel", ArgKey::kernel},
    {"Python id", ArgKey::python_id},
    {"Python parent id", ArgKey::python_parent_id},
    {"Python module id", ArgKey::python_module_id},
    {"Addr", ArgKey::addr},
    {"Bytes", ArgKey::memory_bytes},
    {"Total Allocated", ArgKey::total_allocated},
    {"Total Reserved", ArgKey::total_reserved},
    {"Category", ArgKey::memory_category},
    {"Device Type", ArgKey::device_type},
    {"Device Id", ArgKey::device_id},
    {"name", ArgKey::name},
    {"labels", ArgKey::labels},
    {"sort_index", ArgKey::sort_index},
    {"memory bandwidth (GB/s)", ArgKey::ignored},  // bytes / duration
    {"finished", ArgKey::ignored},
    {"Input names", ArgKey::ignored},  // of 2021, always empty, as are the next four
    {"Output dims", ArgKey::ignored},
    {"Output type", ArgKey::ignored},
    {"Output names", ArgKey::ignored},
    {"Extra arguments", ArgKey::ignored},
    {"Device", ArgKey::ignored},
    {"Trace name", ArgKey::ignored},
    {"Trace iteration", ArgKey::ignored},
    {"external ts", ArgKey::ignored},
};

// An open hash table over kNames: the lookup runs about ten times per event.
class KeyTable {
 public:
  static constexpr size_t kSlots = 256;  // a quarter full: nearly no collisions

  KeyTable() {
    for (const Name& name : kNames) slots_[place_of(name.text)] = name;
  }
  // Where the key is, or the free slot where it would be.
  size_t place_of(std::string_view text) const {
    size_t i = hash_bytes(text) % kSlots;
    while (!slots_[i].text.empty() && !same_text(slots_[i].text, text)) i = (i + 1) % kSlots;
    return i;
  }
  const Name& operator[](size_t place) const { return slots_[place]; }

 private:
  std::array<Name, kSlots> slots_{};
};

const KeyTable& key_table() {
  static const KeyTable kTable;
  return kTable;
}

}  // namespace

bool RawArgs::parse(JsonCursor& cursor, bool keep_other, size_t kind) {
  static_assert(kPlaces == KeyTable::kSlots);
  const KeyTable& table = key_table();
  std::array<uint8_t, kPlaces>& following = following_[kind % kKinds];
  size_t place = 0;
  present_ = 0;
  has_duplicate_ = has_extra_comma_ = false;
  other_.clear();
  return for_each_member(cursor, has_extra_comma_,
                         [&](std::string_view name, std::string_view value) {
                           uint8_t& guess = following[place];
                           place = guess;
                           if (!same_text(table[place].text, name))
                             guess = static_cast<uint8_t>(place = table.place_of(name));
                           const ArgKey key = table[place].key;
                           if (key != ArgKey::other) {
                             const uint64_t bit = uint64_t{1} << static_cast<unsigned>(key);
                             has_duplicate_ |= key != ArgKey::ignored && (present_ & bit) != 0;
                             present_ |= bit;
                             values_[static_cast<size_t>(key)] = value;
                           } else if (keep_other) {
                             if (!other_.empty()) other_ += ", ";
                             other_ += '"';
                             other_ += name;
                             other_ += "\": ";
                             other_ += value;
                           }
                         });
}

}  // namespace epilogue::trace
