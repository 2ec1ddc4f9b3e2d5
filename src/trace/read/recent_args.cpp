// SPDX-License-Identifier: Apache-2.0
#include "trace/read/recent_args.h"

#include "trace/read/string_table.h"

namespace epilogue::trace {
namespace {

template <class... Values>
uint64_t hash_values(Values... values) {
  const std::array<uint64_t, sizeof...(values)> words = {static_cast<uint64_t>(values)...};
  return hash_bytes({reinterpret_cast<const char*>(words.data()), sizeof(words)});
}

}  // namespace

uint64_t hash_args(const KernelArgs& args) {
  return hash_values(args.device, args.stream, args.registers_per_thread, args.shared_memory_bytes,
                     args.grid[0], args.grid[1], args.grid[2], args.block[0], args.graph_node_id,
                     args.bytes, args.other_args);
}

uint64_t hash_args(const RuntimeArgs& args) {
  return hash_values(args.cbid, args.stream, args.bytes, args.kernel_name);
}

}  // namespace epilogue::trace
