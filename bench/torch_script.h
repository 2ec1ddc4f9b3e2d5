// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace epilogue::bench {

// The text of torch_peer.py, so that the command carries it along.
std::string_view torch_script();

}  // namespace epilogue::bench
