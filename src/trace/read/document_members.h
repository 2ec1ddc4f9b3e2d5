// SPDX-License-Identifier: Apache-2.0
// The meaning of the top-level keys of a trace.
#pragma once

#include <string>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Puts one member where it belongs: devices, recording flags, base time, or else the metadata.
// Members that the writer adds by itself (schema version, display unit, name of the file) are left
// out.
void apply_member(Trace& trace, const std::string& key, const std::string& json);

}  // namespace epilogue::trace
