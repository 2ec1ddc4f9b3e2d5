// SPDX-License-Identifier: Apache-2.0
// The size of a network that is not made yet.
#pragma once

#include "epilogue/predictor.h"

namespace epilogue::train {

// Elements of all parameters of make_network(options).
double num_parameters(const NetworkOptions& options);

}  // namespace epilogue::train
