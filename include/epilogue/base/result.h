// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value, or a one-line reason why input from outside could not be used.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "epilogue/base/error.h"
#include "epilogue/base/failure_code.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Why a file or a text could not be used: `code` for programs, `message` for people, one line that
// names the file.
struct Failure {
  FailureCode code;
  std::string message;
};

// Holds a T or a Failure. Both styles work:
//   if (auto r = read(path); !r) return r.failure();     // check
//   auto value = read(path).value();                     // throws Error with the message
template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: functions return the one or the other.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // The value. Throws Error with the failure's message when there is none.
  T& value() & {
    require();
    return std::get<0>(state_);
  }
  const T& value() const& {
    require();
    return std::get<0>(state_);
  }
  T value() && {
    require();
    return std::move(std::get<0>(state_));
  }

  // Precondition: !ok().
  const Failure& failure() const { return std::get<1>(state_); }

 private:
  void require() const {
    if (!ok()) throw Error(failure().message);
  }
  std::variant<T, Failure> state_;
};

// A Result without a value: fine, or a Failure.
using Status = Result<std::monostate>;
inline Status ok_status() { return std::monostate{}; }

}  // namespace epilogue

#pragma GCC visibility pop
