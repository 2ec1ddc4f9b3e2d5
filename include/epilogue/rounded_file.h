// SPDX-License-Identifier: Apache-2.0
// Weights that are rounded already, by name, beside tensors as they are, in a safetensors file:
// what python's epilogue.torch.save_packed() writes too. The file has for a weight NAME
//
//   NAME.steps   U8 [n, (k + 1) / 2] of 4 bits, U8 [n, k] of 8
//   NAME.scales  BF16 or F16 [n, groups] of 4 bits, F32 [n] of 8
//   NAME.zeros   U8 [n, groups], of 4 bits with zero points
//
// and the metadata "rounded.NAME": "int4 n k group" or "int8 n k". The last group of k may be
// short.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "epilogue/io.h"
#include "epilogue/rounded_weight.h"

#pragma GCC visibility push(default)

namespace epilogue {

using NamedRounded = std::vector<std::pair<std::string, RoundedWeight>>;

// Codes: those of save_safetensors(). Throws Error on a weight whose tensors do not fit each other,
// or that has an order of its inputs.
Status save_rounded(const std::string& path, const NamedRounded& weights,
                    const NamedTensors& others = {}, const Metadata& metadata = {});

// Over the mapped bytes, without a copy. Codes: TensorNotFound, UnsupportedDtype, InvalidTensor,
// InvalidMetadata.
Result<RoundedWeight> read_rounded(const SafetensorsFile& file, const std::string& name);

// The names of all weights of a file that are rounded.
std::vector<std::string> rounded_names(const SafetensorsFile& file);

}  // namespace epilogue

#pragma GCC visibility pop
