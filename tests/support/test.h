// SPDX-License-Identifier: Apache-2.0
// GoogleTest and what tests use of the standard library: one header for all of them, because it is
// compiled once (epi_test in cmake/EpilogueTargets.cmake).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <source_location>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace epilogue::test {

inline ::testing::AssertionResult has(std::string_view text, std::string_view part) {
  const bool found = text.find(part) != std::string_view::npos;
  return ::testing::AssertionResult(found)
         << '"' << part << (found ? "\" is in:\n" : "\" is not in:\n") << text;
}

// Gives what a search found. A test cannot go on without it: where there is nothing, it fails with
// what is thrown.
template <class T>
T& found(T* at, std::source_location where = std::source_location::current()) {
  if (at == nullptr)
    throw std::runtime_error(std::string("found nothing at ") + where.file_name() + ":" +
                             std::to_string(where.line()));
  return *at;
}

}  // namespace epilogue::test

// A text has a part, or lacks it. A failure prints both.
#define EXPECT_HAS(text, part) EXPECT_TRUE(::epilogue::test::has(text, part))
#define EXPECT_LACKS(text, part) EXPECT_FALSE(::epilogue::test::has(text, part))
#define ASSERT_HAS(text, part) ASSERT_TRUE(::epilogue::test::has(text, part))

// Tests are compiled without optimisation. For the loops of a reference whose sums would be most of
// a test's time; what they call stays a call.
#if defined(__GNUC__) && !defined(__clang__)
#define EPI_OPTIMIZED [[gnu::optimize("O3")]]
#else
#define EPI_OPTIMIZED
#endif
