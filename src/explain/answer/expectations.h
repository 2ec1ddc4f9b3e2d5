// SPDX-License-Identifier: Apache-2.0
// Expectations of a trace as flags and arguments state them: "kernels_per_step <= 5".
#pragma once

#include <string>
#include <vector>

#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// The values of `argument`, all before anything is run or read. Throws Error on a bad form, and on
// a name that no quantity has, with the nearest ones.
std::vector<Expectation> parse_expectations(const std::string& argument,
                                            const std::vector<std::string>& texts);

// The quantities' names, in the order of quantities().
std::vector<std::string> quantity_names();

}  // namespace epilogue::trace
