// SPDX-License-Identifier: Apache-2.0
// The one exception type of the public API.
#pragma once

#include <stdexcept>
#include <string>

#pragma GCC visibility push(default)

namespace epilogue {

// Thrown when the API is misused. what() reads "[op] expected ..., got ..." with the shapes, dtypes
// or values that came. Input from outside (files, traces) is reported by Result instead.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace epilogue

#pragma GCC visibility pop
