// SPDX-License-Identifier: Apache-2.0
// From the library's failures to Python's exceptions.
#pragma once

#include <utility>

#include "epilogue/base/result.h"

namespace epilogue::python {

// A Failure on its way to Python, where it is a TraceError.
struct FailureRaised {
  Failure failure;
};

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) throw FailureRaised{result.failure()};
  return std::move(result).value();
}

}  // namespace epilogue::python
