// SPDX-License-Identifier: Apache-2.0
// Kernel names, matrix products and occupancy of real traces.
#include "epilogue/trace/file.h"
#include "epilogue/trace/gemms.h"
#include "epilogue/trace/kernel_name.h"
#include "support/test.h"
#include "trace/real_traces.h"

namespace epilogue::trace::kernel_traces_test {

using namespace testing;

Trace read(std::string_view name) { return read_trace(real_trace_path(name)).value(); }

struct Coverage {
  int64_t launches = 0;
  int64_t unknown = 0;
  int64_t distinct = 0;
  std::map<std::string, int64_t> by_family;
};

void count(const Trace& trace, std::set<std::string>& seen, Coverage& coverage) {
  std::map<StringId, KernelName> names;
  for (const Event& e : trace.events) {
    if (e.category != Category::kernel && e.category != Category::gpu_memcpy &&
        e.category != Category::gpu_memset)
      continue;
    const auto [it, is_new] = names.try_emplace(e.name);
    if (is_new) {
      it->second = decode_kernel_name(trace.name(e));
      if (seen.insert(it->second.name).second) ++coverage.distinct;
    }
    ++coverage.launches;
    ++coverage.by_family[it->second.family];
    if (!it->second.is_known()) ++coverage.unknown;
  }
}

TEST(RealKernelNames, AreNearlyAllKnown) {
  if (!std::filesystem::exists(real_traces_folder())) GTEST_SKIP() << "no real traces";
  Coverage coverage;
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(real_traces_folder())) {
    const std::string path = entry.path().string();
    const bool is_trace = path.ends_with(".json") || path.ends_with(".json.gz");
    if (!is_trace || path.find("malformed") != std::string::npos) continue;
    if (auto trace = read_trace(path)) count(trace.value(), seen, coverage);
  }
  ASSERT_GT(coverage.launches, 0);
  std::vector<std::pair<int64_t, std::string>> families;
  for (const auto& [family, n] : coverage.by_family) families.emplace_back(n, family);
  std::sort(families.rbegin(), families.rend());
  const auto share = [&](int64_t n) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(coverage.launches);
  };
  for (const auto& [n, family] : families) std::printf("%6.2f %% %s\n", share(n), family.c_str());
  std::printf("%lld launches, %lld distinct names\n", static_cast<long long>(coverage.launches),
              static_cast<long long>(coverage.distinct));
  EXPECT_GE(100 - share(coverage.unknown), 90);
}

TEST(RealGemms, HaveRatesBelowThePeakOfTheirDevice) {
  int traces = 0;
  int checked = 0;
  for (const char* name : {"tracelens/h100_qwen_0.5b.json.gz", "tracelens/b300_moe.json.gz",
                           "tracelens/h100_vit.json.gz", "tracelens/mi300_bert_small.json.gz",
                           "sam/a100_eager.json.gz", "sam/a100_optimised.json.gz"}) {
    if (!has_real_trace(name)) continue;
    ++traces;
    const Trace trace = read(name);
    const GemmReport report = gemm_report(trace, link(trace));
    EXPECT_FALSE(report.gemms.empty()) << name;
    for (const Gemm& g : report.gemms) {
      if (g.peak_pct) {
        EXPECT_LT(*g.peak_pct, 100) << name << " " << g.kernel;
        ++checked;
      }
      if (g.attainable_pct) {
        EXPECT_LT(*g.attainable_pct, 110) << name << " " << g.kernel;
      }
    }
  }
  if (traces == 0) GTEST_SKIP() << "no real traces";
  EXPECT_GT(checked, 0);
}

TEST(RealGemms, OfQwenAreKnownButForTheOnesFromBeforeTheWindow) {
  if (!has_real_trace("tracelens/h100_qwen_0.5b.json.gz")) GTEST_SKIP() << "no real traces";
  const Trace trace = read("tracelens/h100_qwen_0.5b.json.gz");
  const GemmReport report = gemm_report(trace, link(trace));
  EXPECT_EQ(report.kernels, 242);
  EXPECT_EQ(report.kernels_with_shape, 169);
  const Gemm& first = report.gemms.front();
  EXPECT_EQ(first.shape, (GemmShape{8944, 2816, 1024, 1}));
  EXPECT_EQ(first.time.count, 48);
  EXPECT_EQ(first.a_type, "bf16");
  EXPECT_EQ(first.side, RooflineSide::compute);
  EXPECT_NEAR(*first.peak_pct, 62, 1);
  EXPECT_EQ(first.tiling->tiles, 1540);  // 2816 / 128 = 22, 8944 / 128 = 69.9
}

TEST(RealGemms, OfTheMoeLayerCoverTheirGridExactly) {
  if (!has_real_trace("tracelens/b300_moe.json.gz")) GTEST_SKIP() << "no real traces";
  const Trace trace = read("tracelens/b300_moe.json.gz");
  const GemmReport report = gemm_report(trace, link(trace));
  ASSERT_EQ(report.gemms.size(), 3U);
  for (const Gemm& g : report.gemms) {
    EXPECT_EQ(g.tiling->tiles, g.grid_blocks) << g.kernel;
    EXPECT_EQ(g.side, RooflineSide::memory);
  }
  EXPECT_EQ(report.gemms[0].shape, (GemmShape{1, 2048, 1024, 1024}));
}

TEST(RealGemms, OfSamMoveFromCudaCoresToTensorCores) {
  if (!has_real_trace("sam/a100_eager.json.gz")) GTEST_SKIP() << "no real traces";
  const Trace before = read("sam/a100_eager.json.gz");
  const Trace after = read("sam/a100_optimised.json.gz");
  const GemmShape mlp{4096, 5120, 1280, 1};
  const auto find = [&](const GemmReport& r) {
    return *std::find_if(r.gemms.begin(), r.gemms.end(),
                         [&](const Gemm& g) { return g.shape == mlp; });
  };
  const Gemm a = find(gemm_report(before, link(before)));
  const Gemm b = find(gemm_report(after, link(after)));
  EXPECT_EQ(describe_difference(a.name, b.name),
            "f32 -> bf16; CUDA cores -> tensor cores; tile 128x64 -> 128x256");
  EXPECT_GT(*b.tflops / *a.tflops, 10);
}

// Kineto computes occupancy by the same rules where no opt-in is needed, so the two must agree.
TEST(RealOccupancy, AgreesWithTheRecordedOneWhereThatIsNoArtefact) {
  int traces = 0;
  int64_t compared = 0;
  int64_t artefacts = 0;
  for (const char* name : {"tracelens/h100_qwen_0.5b.json.gz", "tracelens/b300_moe.json.gz",
                           "tracelens/h100_vit.json.gz", "sam/a100_eager.json.gz",
                           "sam/a100_optimised.json.gz", "hta/v100_ddp_compiled_memory.json.gz"}) {
    if (!has_real_trace(name)) continue;
    ++traces;
    for (const KernelOccupancy& k : kernel_occupancies(read(name))) {
      if (!k.recorded_pct || !k.estimated_pct) continue;
      ++compared;
      artefacts += k.is_recorded_zero_artefact ? 1 : 0;
      if (!k.is_recorded_zero_artefact) {
        EXPECT_LE(std::abs(*k.recorded_pct - *k.estimated_pct), 1) << name << " " << k.kernel;
      }
    }
  }
  if (traces == 0) GTEST_SKIP() << "no real traces";
  std::printf("%lld configurations compared, %lld recorded as 0 %% by the artefact\n",
              static_cast<long long>(compared), static_cast<long long>(artefacts));
  EXPECT_GT(artefacts, 0);
}

}  // namespace epilogue::trace::kernel_traces_test
