// SPDX-License-Identifier: Apache-2.0
// Renders decoded kernel names.
#pragma once

#include <span>
#include <string>

#include "epilogue/trace/kernel_name.h"

namespace epilogue::trace {

// A block per name; inferred fields are marked with '~'.
std::string kernel_names_text(std::span<const KernelName> names);
// [{"schema_version", "name", "family", "kind", "fields", "inferred", "notes", "ops", "summary"}].
std::string kernel_names_json(std::span<const KernelName> names);
// A table per name.
std::string kernel_names_markdown(std::span<const KernelName> names);

}  // namespace epilogue::trace
