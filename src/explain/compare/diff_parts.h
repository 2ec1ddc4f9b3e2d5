// SPDX-License-Identifier: Apache-2.0
// The parts of a difference: which work of one trace became which of the other, in words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/kernel_name.h"
#include "explain/kernel_name/kernel_labels.h"
#include "explain/timeline/time_account.h"

namespace epilogue::trace {

// One kernel of one op of one trace.
struct KernelUse {
  std::string_view name;
  std::string_view op;  // "" where no op is known
  double count = 0;
  int64_t total_ns = 0;
  int64_t booked_ns = 0;
  int64_t bytes = 0;           // as BookedWork::bytes
  std::string_view fused_ops;  // KernelArgs::fused_ops; "" where the trace does not say
};

// The uses of an account, the longest first. Views refer to the trace and the account.
std::vector<KernelUse> kernel_uses(const Trace& trace, const TimeAccount& account);

enum class MatchKind : uint8_t {
  same_kernel,  // in both, by name: of the same op, or of another where that has no other match
  same_op,      // an op's kernels: others after than before
  fused,        // kernels of ops before, fused kernels that name these ops after (or the reverse)
  same_kind,    // of one kind of work ("gemm") without a common op
  only_before,
  only_after,
};

// Kernels of both traces that do the same work.
struct Match {
  MatchKind kind = MatchKind::same_kernel;
  std::string what;                            // the kernel's, op's or kind's name
  std::string op;                              // of kSameKernel: of all uses; "" where they differ
  std::array<std::vector<KernelUse>, 2> uses;  // before, after
  size_t fused_side = 1;                       // of kFused: where the fused kernels are
  std::vector<std::string> ops;                // of kFused: those of the other side's kernels

  int64_t booked_ns(size_t side) const;
  double count(size_t side) const;
  int64_t bytes(size_t side) const;  // -1: unknown
};

// Every use is in exactly one match.
std::vector<Match> match_kernels(std::vector<KernelUse> before, std::vector<KernelUse> after);

// Matches of work as parts of a difference, in words.

// `diff` says whether counts are of a step.
DiffPart part_of(const Match& match, const KernelLabels& labels, const TraceDiff& diff);

// "1,264", or "5.33": of an average step.
std::string count_text(double count);
// The word for counts of both sides: `one` if both are 1.
std::string_view noun_for(const std::array<double, 2>& n, std::string_view one,
                          std::string_view many);

}  // namespace epilogue::trace
