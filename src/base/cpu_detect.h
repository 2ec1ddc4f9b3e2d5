// SPDX-License-Identifier: Apache-2.0
// Detects the processor's features. A file of its own: a test that brings instructions along links
// another in its place.
#pragma once

#include "base/cpu_features.h"

namespace epilogue {

// The features of this processor and operating system. Asks for the tiles' memory where there are
// tiles. detected_features() remembers the answer.
CpuFeatures detect_features();

}  // namespace epilogue
