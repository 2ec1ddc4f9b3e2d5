// SPDX-License-Identifier: Apache-2.0
#include "trace/read/raw_args.h"

#include "trace/read/string_table.h"

namespace epilogue::trace {
namespace {

static_assert(kArgKeys <= 64, "one bit each");

struct Name {
  std::string_view text;
  ArgKey key;
};

constexpr Name kNames[] = {
    {"External id", ArgKey::kExternalId},
    {"external id", ArgKey::kExternalId},
    {"correlation", ArgKey::kCorrelation},
    {"Record function id", ArgKey::kRecordFunctionId},
    {"Ev Idx", ArgKey::kEvIdx},
    {"Profiler Event Index", ArgKey::kEvIdx},
    {"Sequence number", ArgKey::kSequenceNumber},
    {"Fwd thread id", ArgKey::kFwdThreadId},
    {"Input Dims", ArgKey::kInputDims},
    {"Input dims", ArgKey::kInputDims},
    {"Input type", ArgKey::kInputType},
    {"Input Strides", ArgKey::kInputStrides},
    {"Concrete Inputs", ArgKey::kConcreteInputs},
    {"Call stack", ArgKey::kCallStack},
    {"Module Hierarchy", ArgKey::kModuleHierarchy},
    {"Overload name", ArgKey::kOverloadName},
    {"Async", ArgKey::kAsync},
    {"queued", ArgKey::kQueued},
    {"device", ArgKey::kDevice},
    {"context", ArgKey::kContext},
    {"stream", ArgKey::kStream},
    {"registers per thread", ArgKey::kRegistersPerThread},
    {"shared memory", ArgKey::kSharedMemory},
    {"shared size", ArgKey::kSharedMemory},
    {"blocks per SM", ArgKey::kBlocksPerSm},
    {"warps per SM", ArgKey::kWarpsPerSm},
    {"grid", ArgKey::kGrid},
    {"grid dim", ArgKey::kGrid},
    {"block", ArgKey::kBlock},
    {"block dim", ArgKey::kBlock},
    {"est. achieved occupancy %", ArgKey::kOccupancy},
    {"theoretical occupancy %", ArgKey::kOccupancy},
    {"graph id", ArgKey::kGraphId},
    {"graph node id", ArgKey::kGraphNodeId},
    {"bytes", ArgKey::kBytes},
    {"size", ArgKey::kBytes},
    {"flops", ArgKey::kFlops},
    {"threads", ArgKey::kThreads},
    {"fused ops", ArgKey::kFusedOps},
    {"unfused bytes", ArgKey::kUnfusedBytes},
    {"cbid", ArgKey::kCbid},
    {"cid", ArgKey::kCbid},
    {"kernel", ArgKey::kKernel},
    {"Python id", ArgKey::kPythonId},
    {"Python parent id", ArgKey::kPythonParentId},
    {"Python module id", ArgKey::kPythonModuleId},
    {"Addr", ArgKey::kAddr},
    {"Bytes", ArgKey::kMemoryBytes},
    {"Total Allocated", ArgKey::kTotalAllocated},
    {"Total Reserved", ArgKey::kTotalReserved},
    {"Category", ArgKey::kMemoryCategory},
    {"Device Type", ArgKey::kDeviceType},
    {"Device Id", ArgKey::kDeviceId},
    {"name", ArgKey::kName},
    {"labels", ArgKey::kLabels},
    {"sort_index", ArgKey::kSortIndex},
    {"memory bandwidth (GB/s)", ArgKey::kIgnored},  // bytes / duration
    {"finished", ArgKey::kIgnored},
    {"Input names", ArgKey::kIgnored},  // of 2021, always empty, as are the next four
    {"Output dims", ArgKey::kIgnored},
    {"Output type", ArgKey::kIgnored},
    {"Output names", ArgKey::kIgnored},
    {"Extra arguments", ArgKey::kIgnored},
    {"Device", ArgKey::kIgnored},
    {"Trace name", ArgKey::kIgnored},
    {"Trace iteration", ArgKey::kIgnored},
    {"external ts", ArgKey::kIgnored},
};

// An open hash table over kNames: the lookup runs about ten times per event.
class KeyTable {
 public:
  KeyTable() {
    for (const Name& name : kNames) {
      size_t i = hash_bytes(name.text) % kSlots;
      while (!slots_[i].text.empty()) i = (i + 1) % kSlots;
      slots_[i] = name;
    }
  }
  ArgKey find(std::string_view text) const {
    for (size_t i = hash_bytes(text) % kSlots; !slots_[i].text.empty(); i = (i + 1) % kSlots)
      if (slots_[i].text == text) return slots_[i].key;
    return ArgKey::kOther;
  }

 private:
  static constexpr size_t kSlots = 256;  // a quarter full: nearly no collisions
  std::array<Name, kSlots> slots_{};
};

ArgKey find_key(std::string_view text) {
  static const KeyTable kTable;
  return kTable.find(text);
}

}  // namespace

bool RawArgs::parse(JsonCursor& cursor, bool keep_other) {
  present_ = 0;
  has_duplicate_ = has_extra_comma_ = false;
  other_.clear();
  return for_each_member(cursor, has_extra_comma_,
                         [&](std::string_view name, std::string_view value) {
                           const ArgKey key = find_key(name);
                           if (key != ArgKey::kOther) {
                             const uint64_t bit = uint64_t{1} << static_cast<unsigned>(key);
                             has_duplicate_ |= key != ArgKey::kIgnored && (present_ & bit) != 0;
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
