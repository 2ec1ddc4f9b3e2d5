// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "explain/render/trace_folder.h"

namespace epilogue::tool {

inline constexpr const char* kHost = "127.0.0.1";
inline constexpr const char* kPerfetto = "https://ui.perfetto.dev";

// Serves the folder on a port of loopback (0: any free one) until SIGINT or SIGTERM; false if
// listening failed. Throws if the port cannot be used. `on_bound` is called with the port before
// the first request is answered.
bool serve(const trace::TraceFolder& folder, int wanted_port,
           const std::function<void(int port)>& on_bound);

}  // namespace epilogue::tool
