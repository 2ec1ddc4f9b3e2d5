// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this machine has, and which one the kernels use.
#pragma once

#include <span>
#include <string_view>

#include "epilogue/base/result.h"

namespace epilogue {

// Ordered: a level includes all below it.
enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };

inline constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

std::string_view isa_name(Isa isa);
Result<Isa> parse_isa(std::string_view name);

// The best level of this processor and operating system.
Isa detected_isa();

// The level in use: detected_isa(), lowered by EPILOGUE_ISA or set_active_isa. An EPILOGUE_ISA that
// is unknown or above what the machine has makes the first call throw Error.
Isa active_isa();
// For tests and tools; not to be called while kernels run. Throws Error above detected_isa().
void set_active_isa(Isa isa);

std::string_view cpu_model_name();

}  // namespace epilogue
