// SPDX-License-Identifier: Apache-2.0
// The args object of an event as texts by key, before anyone knows what they mean.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "trace/read/json/json_cursor.h"

namespace epilogue::trace {

// The keys of traces since 2021; older spellings share an enumerator with the newer ones.
enum class ArgKey : uint8_t {
  kExternalId,
  kCorrelation,
  kRecordFunctionId,
  kEvIdx,
  kSequenceNumber,
  kFwdThreadId,
  kInputDims,
  kInputType,
  kInputStrides,
  kConcreteInputs,
  kCallStack,
  kModuleHierarchy,
  kOverloadName,
  kAsync,
  kQueued,
  kDevice,
  kContext,
  kStream,
  kRegistersPerThread,
  kSharedMemory,
  kBlocksPerSm,
  kWarpsPerSm,
  kGrid,
  kBlock,
  kOccupancy,
  kGraphId,
  kGraphNodeId,
  kBytes,
  kFlops,
  kThreads,
  kFusedOps,
  kUnfusedBytes,
  kCbid,
  kKernel,
  kPythonId,
  kPythonParentId,
  kPythonModuleId,
  kAddr,
  kMemoryBytes,
  kTotalAllocated,
  kTotalReserved,
  kMemoryCategory,
  kDeviceType,
  kDeviceId,
  kName,
  kLabels,
  kSortIndex,
  kIgnored,  // known to say nothing that the trace keeps
  kOther,
};
inline constexpr size_t kArgKeys = static_cast<size_t>(ArgKey::kOther) + 1;

class RawArgs {
 public:
  // Reads the object at the cursor; false when it is broken or not complete. With `keep_other`,
  // members without an enumerator are collected in other().
  bool parse(JsonCursor& cursor, bool keep_other);
  void clear() { present_ = 0; }

  bool has(ArgKey key) const { return (present_ >> static_cast<unsigned>(key) & 1U) != 0; }
  // The value's JSON text; "" when there is none.
  std::string_view operator[](ArgKey key) const {
    return has(key) ? values_[static_cast<size_t>(key)] : std::string_view();
  }
  // The members of a JSON object, without its braces.
  const std::string& other() const { return other_; }
  bool has_duplicate() const { return has_duplicate_; }
  bool has_extra_comma() const { return has_extra_comma_; }

 private:
  uint64_t present_ = 0;
  std::array<std::string_view, kArgKeys> values_;
  std::string other_;
  bool has_duplicate_ = false;
  bool has_extra_comma_ = false;
};

}  // namespace epilogue::trace
