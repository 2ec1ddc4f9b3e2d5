// SPDX-License-Identifier: Apache-2.0
// Weights that were packed, and whether they changed since: the one place that finds it out.
//
//   moved     a parameter has other memory, sizes, strides or another dtype: what was packed is of
//             other tensors
//   written   its version changed; an optimizer stepped (fused ones change no version); or one of
//             32 sampled elements changed, which a write through .data or NumPy may show alone
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <torch/headeronly/core/ScalarType.h>

#include "tensors.h"

namespace epilogue_torch {

// Any optimizer of the process wrote parameters.
void note_step();

class Weights {
 public:
  // A tensor of torch, kept alive with its memory, as the engine computes with it: the same, or
  // converted to `dtype`. Views of parameters are taken too. All are added before the first call.
  epilogue::Tensor add(const Torch& tensor, const char* what, epilogue::DType dtype);
  // The parameters behind what was added. None was made in inference mode: these have no version.
  void watch(const std::vector<Torch>& parameters);

  // False if a parameter was moved. A written one is packed again at the engine's next call.
  // Thread-safe; `parameters` are those of watch(), as they are now.
  bool see(const std::vector<Torch>& parameters);
  // As if all were written.
  void refresh();

  const Torch& first() const { return sources_[0].owner; }

 private:
  struct Source {
    Torch owner;
    epilogue::Tensor tensor;
    epilogue::Tensor used;
  };
  struct Known {
    const void* data;
    torch::headeronly::ScalarType dtype;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t version;
    uint64_t sample;
  };
  void write_again();

  std::vector<Source> sources_;
  std::mutex mutex_;  // of what follows
  std::vector<Known> known_;
  int64_t steps_ = 0;
};

}  // namespace epilogue_torch
