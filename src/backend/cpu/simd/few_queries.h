// SPDX-License-Identifier: Apache-2.0
// Products of a few rows of queries with keys and values that lie in memory as they are: each row
// of keys and of values is read once for four queries.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/simd/convert.h"

namespace epilogue::simd {

// Rows of keys or of values, of any float type.
struct KeyRows {
  const void* data;
  int64_t stride;  // elements between rows
  int64_t rows;
  int64_t columns;  // contiguous
};

// Rows of f32; `stride` floats between them.
struct FloatRows {
  float* data;
  int64_t stride;
};

// Arithmetic is f32. What is between the columns of f32 rows and the next multiple of
// kFewQueriesColumns must be there: `scores` reads it of the queries, where it must be 0, `add`
// writes it. One thread: the caller splits queries and keys.
inline constexpr int64_t kFewQueriesColumns = 16;

struct FewQueriesKernels {
  // s[i][j] = sum over c of q[i][c] k[j][c]
  using Scores = void (*)(const FloatRows& q, int64_t queries, const KeyRows& k,
                          const FloatRows& s);
  // o[i][c] += sum over j of p[i][j] v[j][c]
  using Add = void (*)(const FloatRows& p, int64_t queries, const KeyRows& v, const FloatRows& o);

  const char* target;  // Highway's name of the instruction set, e.g. "AVX3"
  // By FloatType of the keys and values.
  std::array<Scores, 3> scores;
  std::array<Add, 3> add;
};

// The kernels of active_isa(); valid for ever, but fetch them per call (targets.h).
const FewQueriesKernels& few_queries_kernels();

}  // namespace epilogue::simd
