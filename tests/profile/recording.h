// SPDX-License-Identifier: Apache-2.0
// The trace of what a function does.
#pragma once

#include <functional>
#include <utility>

#include "epilogue/profiler.h"

namespace epilogue::profiler {

inline trace::Trace record(const std::function<void()>& body, ProfileOptions options = {}) {
  trace::Trace result;
  options.on_trace_ready = [&](Profile& p) {
    result = std::move(const_cast<trace::Trace&>(p.trace()));
  };
  Profile prof(options);
  prof.start();
  body();
  prof.stop();
  return result;
}

}  // namespace epilogue::profiler
