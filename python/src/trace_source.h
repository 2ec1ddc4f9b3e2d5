// SPDX-License-Identifier: Apache-2.0
// Which trace, as Python names it, and work on it without the interpreter's lock, which is taken
// now and then to see whether Ctrl-C was pressed.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "epilogue/trace/answer.h"
#include "errors.h"

namespace epilogue::python {

using Warnings = std::vector<std::string>;

// Keeps what it was made of.
struct Source {
  std::string path;
  std::optional<nanobind::bytes> bytes;
  trace::TraceInput input;
};

// Runs Python's handlers of signals at most every 50 ms, for taking the lock may wait for others.
class SignalPoll {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const nanobind::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

inline trace::AnswerHooks hooks_into(Warnings& warnings) {
  return {.warn = [&](const std::string& text) { warnings.push_back(text); }, .poll = SignalPoll()};
}

// What body(hooks) gives, and the warnings on the way.
template <class Body>
auto unlocked(const Body& body) {
  Warnings warnings;
  const nanobind::gil_scoped_release free;
  auto answer = value_or_raise(body(hooks_into(warnings)));
  return std::pair(std::move(answer), std::move(warnings));
}

}  // namespace epilogue::python
