// SPDX-License-Identifier: Apache-2.0
// Perfetto's protobuf traces (.pftrace, .perfetto-trace), as PyTorch 2.15 writes them
// (export_chrome_trace("x.pftrace")), as the JSON that Kineto writes of the same run.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "epilogue/base/result.h"
#include "trace/read/byte_source.h"

namespace epilogue::trace {

// A trace above this is refused: all of its bytes are held until slices have their ends.
inline constexpr size_t kMaxPerfettoBytes = size_t{4} << 30;

// Do these first bytes of a trace look like one of Perfetto?
bool is_perfetto(std::string_view head);

// A source of the same bytes, or, if they are a trace of Perfetto, of JSON made of it. Slices of
// tracks (with their debug annotations as args) become events, stages of a GPU become kernels,
// copies and fills; counters, flows and other packets are left out. Fails, with one line that names
// the place, if the protobuf is damaged or ends early, and if it has no slice. `name` stands for
// the path in messages.
Result<std::unique_ptr<ByteSource>> translated_source(std::unique_ptr<ByteSource> source,
                                                      const std::string& name);

}  // namespace epilogue::trace
