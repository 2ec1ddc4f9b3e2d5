// SPDX-License-Identifier: Apache-2.0
// Weights that were packed, and whether they changed since: the one place that finds it out.
//
//   moved     a parameter has other memory, sizes, strides or another dtype: what was packed is of
//             other tensors
//   written   its version changed; an optimizer stepped (fused ones change no version); or one of
//             32 sampled elements changed, which a write through .data or NumPy may show alone
//
// Weights may be in groups, of which a call names those that it reads (experts): what is looked at
// grows with what is read. A write to another group is found at the first call that reads it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "tensors.h"

namespace epilogue_torch {

// Any optimizer of the process wrote parameters.
void note_step();

class Weights {
 public:
  // borrows: memory is the caller's, who names all parameters at each call; else it is kept alive.
  explicit Weights(bool borrows = false) : borrows_(borrows) {}
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // A tensor of torch, with its memory, as the engine computes with it: the same, or
  // converted to `dtype`. Views of parameters are taken too. All are added before the first call.
  // Handles of one weight get one tensor, so that they share its packed copy. group: from 0 on, or
  // -1: every call reads it.
  epilogue::Tensor add(const Torch& tensor, const char* what, epilogue::DType dtype,
                       int64_t group = -1);
  // The parameters behind what was added. None was made in inference mode: these have no version.
  // keeps: calls may leave them out; torch.utils.swap_tensors() refuses what is kept.
  void watch(const std::vector<Torch>& parameters, bool keeps = false);

  // False if a parameter was moved. A written one is packed again at the engine's next call.
  // Thread-safe; `parameters` are those of watch(), as they are now: the owner may have put others
  // in their place; empty: those that were kept. groups: those that the call reads; null: all.
  bool see(const std::vector<Torch>& parameters, const std::vector<int64_t>* groups = nullptr);
  // As if all were written.
  void refresh();

 private:
  struct Source {
    Torch owner;  // undefined where memory is borrowed
    epilogue::Tensor tensor;
    epilogue::Tensor used;
    int64_t group;
  };
  struct Known {
    const void* data;
    int32_t dtype;    // torch's number of it
    int64_t element;  // bytes
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    int64_t version;
    std::vector<int64_t> places;  // of the sampled elements, in bytes
    uint64_t sample;
    std::vector<size_t> sources;  // that lie in it; none: any may
  };
  bool see_one(const Torch& parameter, Known& known);
  void write_again();
  static void write_again(const Source& source);

  bool borrows_;
  std::vector<Source> sources_;
  std::mutex mutex_;  // of what follows
  std::vector<Torch> parameters_;
  std::vector<Known> known_;                   // by parameter
  std::vector<size_t> of_all_;                 // parameters that every call reads
  std::vector<std::vector<size_t>> of_group_;  // and those of each group
  int64_t steps_ = 0;
};

}  // namespace epilogue_torch
