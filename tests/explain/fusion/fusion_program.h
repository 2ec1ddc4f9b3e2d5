// SPDX-License-Identifier: Apache-2.0
// Small programs whose fusions tests work out by hand.
#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/trace/fusion.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::testing {

inline constexpr const char* kBFloat16 = "c10::BFloat16";

// A program of ops one after another, each with one kernel of its length.
class Program {
 public:
  void op(const char* name, int64_t us, std::vector<OpInput> inputs, const char* kernel = nullptr) {
    const int64_t end = now_ + us * kUs;
    builder_.op(name, now_, end);
    if (!inputs.empty()) builder_.inputs(std::move(inputs));
    if (has_kernels) device_work(kernel != nullptr ? kernel : name, now_, end);
    start_ = now_;
    now_ = end;
  }
  // More device work of the last op.
  void beside(const char* kernel, int64_t us) { device_work(kernel, start_, start_ + us * kUs); }
  void mm(std::vector<int64_t> a, std::vector<int64_t> b, int64_t us = 200) {
    op("aten::mm", us, {tensor(std::move(a), kBFloat16), tensor(std::move(b), kBFloat16)}, "gemm");
  }
  void unary(const char* name, int64_t us, std::vector<int64_t> dims) {
    op(name, us, {tensor(std::move(dims), kBFloat16)});
  }
  void binary(const char* name, int64_t us, std::vector<int64_t> a, std::vector<int64_t> b) {
    op(name, us, {tensor(std::move(a), kBFloat16), tensor(std::move(b), kBFloat16)});
  }
  void copy(const char* kernel, int64_t us, std::vector<int64_t> dims) {
    op("aten::copy_", us, {tensor(dims, kBFloat16), tensor(dims, kBFloat16)}, kernel);
  }
  // A view of a part: x[0], a slice, a chunk.
  void part(std::vector<int64_t> whole, const char* sizes) {
    builder_.op("aten::as_strided", now_, now_ + kUs);
    builder_.inputs({tensor(std::move(whole), kBFloat16), scalar(sizes, "ScalarList"),
                     scalar("[1]", "ScalarList"), scalar("0")});
    now_ += kUs;
  }
  void annotated(std::string_view name, const std::function<void()>& body) {
    const int64_t begin = now_;
    body();
    builder_.annotation(name, begin, now_);
  }

  FusionFindings find(FusionOptions options = {}) {
    return find_fusions(builder_.trace, link(builder_.trace), options);
  }
  bool has_kernels = true;

 private:
  void device_work(std::string_view name, int64_t start_ns, int64_t end_ns) {
    Event& work = builder_.kernel(name, start_ns, end_ns, 0);
    if (name.starts_with("Memcpy")) work.category = Category::gpu_memcpy;
    if (name.starts_with("Memset")) work.category = Category::gpu_memset;
  }

  TraceBuilder builder_;
  int64_t start_ = 0;  // of the last op
  int64_t now_ = 0;
};

inline const Fusion* find(const FusionFindings& findings, FusionKind kind) {
  const auto at = std::find_if(findings.fusions.begin(), findings.fusions.end(),
                               [&](const Fusion& f) { return f.kind == kind; });
  return at == findings.fusions.end() ? nullptr : &*at;
}

// The same, of a test that cannot go on without it: where there is none, the test fails with what
// is thrown.
inline Fusion fusion_of(const FusionFindings& findings, FusionKind kind) {
  const Fusion* found = find(findings, kind);
  if (found == nullptr)
    throw std::runtime_error("expected a fusion " + std::string(fusion_kind_name(kind)));
  return *found;
}

}  // namespace epilogue::trace::testing
