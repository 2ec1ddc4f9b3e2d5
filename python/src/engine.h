// SPDX-License-Identifier: Apache-2.0
// The parts of the engine half, each in the file of its name, and what they share.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>

#include "epilogue/dims.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/tensor.h"

namespace epilogue::python {

void bind_tensors(nanobind::module_& m);
void bind_ops(nanobind::module_& m);
void bind_modules(nanobind::module_& m);
void bind_predictor(nanobind::module_& m);
void bind_profiler(nanobind::module_& m);

using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;

// A Python object that the library holds: let go under the interpreter's lock, from any thread. At
// the interpreter's end, when nobody may take the lock, it is left alone.
inline std::shared_ptr<nanobind::object> held(nanobind::object object) {
  return {new nanobind::object(std::move(object)), [](nanobind::object* o) {
            if (nanobind::is_alive() && Py_IsInitialized() != 0) {
              const nanobind::gil_scoped_acquire locked;
              delete o;
            }
          }};
}

// None where there is no tensor.
inline std::optional<Tensor> if_defined(const Tensor& t) {
  return t.defined() ? std::optional(t) : std::nullopt;
}

// Fewer bits as Python's keywords name them.
struct BitsChoice {
  std::optional<std::string> weights;      // "int8" or "int4"
  std::optional<std::string> activations;  // "int8"
  int group = 128;
  bool zero_points = false;
  bool int8_weights = false;
};
// Throws Error where these do not fit each other.
Quantisation bits_of(const BitsChoice& choice);

// A sequence of numbers, or one number.
Dims to_dims(nanobind::handle sizes);

}  // namespace epilogue::python
