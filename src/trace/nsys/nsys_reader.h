// SPDX-License-Identifier: Apache-2.0
// SQLite exports of Nsight Systems (`nsys export --type sqlite`) as traces.
#pragma once

#include <string>
#include <string_view>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/file.h"

namespace epilogue::trace {

// The first bytes of every SQLite database.
inline constexpr std::string_view kSqliteMagic = "SQLite format 3";

// Kernels, copies, fills, graphs that were traced as a whole, calls of CUDA's API, and NVTX ranges.
// Ranges of torch.autograd.profiler.emit_nvtx ("aten::mm, seq = 3, op_id = 7") are ops, all others
// annotations. Times are from the start of the session. Fails with FailureCode::not_a_trace if the
// database has none of these tables, and if it cannot be read. The database is
// opened for reading alone, and runs nothing of its own: views and virtual tables are not read.
Result<Trace> read_nsys(const std::string& path, const ReadOptions& options);
// `bytes` is the whole database.
Result<Trace> read_nsys_bytes(std::string_view bytes, const std::string& name,
                              const ReadOptions& options);

}  // namespace epilogue::trace
