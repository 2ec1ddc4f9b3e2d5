// SPDX-License-Identifier: Apache-2.0
// A target of CMake needs a source to have a precompiled header.
#include "support/test.h"
