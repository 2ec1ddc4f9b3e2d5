// SPDX-License-Identifier: Apache-2.0
// The AMX instructions for processors without them: each one that the processor refuses is decoded
// and carried out in plain code, by a handler of SIGILL. So the kernels' own machine code runs,
// with everything around it, on any x86-64 machine; slowly, and with the checks that the processor
// makes.
//
// ldtilecfg, tilerelease, tilezero, tileloadd, tileloaddt1, tilestored, tdpbf16ps, tdpbssd, as in
// Intel's Architecture Instruction Set Extensions Programming Reference, chapter 3. Anything else
// ends the process as ever; so does a shape that the processor would refuse, with a line that names
// it.
#pragma once

#include <cstdint>

namespace epilogue::testing {

// To be called once, before the first such instruction.
void install_amx_emulator();
// Whether it was: a processor with tiles carries the instructions out itself, and counts none.
bool amx_is_emulated();

// Instructions carried out so far, by all threads: proof that they were.
int64_t emulated_amx_products();

}  // namespace epilogue::testing
