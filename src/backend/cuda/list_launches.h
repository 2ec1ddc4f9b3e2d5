// SPDX-License-Identifier: Apache-2.0
// Lists of tensors as the launches that work on them.
#pragma once

#include <vector>

#include "backend/cuda/kernels/lists.h"
#include "ops/list_call.h"

namespace epilogue::cuda {

// Cuts the lists of a call into launches of kListTensors tensors, in order: launch j begins at
// tensor j * kListTensors. Tensors without elements have no blocks. Precondition: at most
// kMostLists lists, of contiguous tensors.
std::vector<ListTensors> list_launches(const Call& call);

}  // namespace epilogue::cuda
