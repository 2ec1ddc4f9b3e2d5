// SPDX-License-Identifier: Apache-2.0
// The process-wide knobs: threads and instruction sets, and what this build is.
#pragma once

#include <string>
#include <string_view>

#include "epilogue/base/executor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// "0.1.0".
std::string_view version();

// Threads that kernels may use, the caller included. Default: the processors that this process may
// run on, or EPILOGUE_NUM_THREADS; within an ExecutorScope, what the executor says. The first call,
// or the first large op, throws Error where EPILOGUE_NUM_THREADS is no number from 1 to 4096.
//
// A machine that gives fewer threads makes work slower, not different. After fork() the child
// starts threads of its own, provided that no other thread was using the library at that time; it
// draws the random numbers that its parent draws, and cannot use CUDA where its parent did.
int num_threads();
// Throws Error outside [1, 4096]. Not while kernels run.
void set_num_threads(int n);

// The instruction-set level of the kernels: baseline, avx2, avx512, avx512_bf16 or amx.
// EPILOGUE_ISA lowers it; a level that this machine lacks makes the first call throw Error.
std::string active_isa_name();
std::string detected_isa_name();

// The device's name, or why there is none.
std::string cuda_status();

}  // namespace epilogue

#pragma GCC visibility pop
