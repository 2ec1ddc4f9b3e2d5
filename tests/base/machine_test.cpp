// SPDX-License-Identifier: Apache-2.0
// Caches as sysfs and CPUID tell them; the machine's figures and the file that keeps them.
#include "base/machine.h"

#include "base/caches.h"
#include "base/cpu_features.h"
#include "base/file.h"
#include "base/machine_figures.h"
#include "base/thread_pool.h"
#include "support/test.h"

namespace epilogue::machine_test {

namespace fs = std::filesystem;
using samples::figures_of_now;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "epilogue_machine_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class EnvironmentScope {
 public:
  EnvironmentScope(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~EnvironmentScope() { setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

void write_cache(const std::string& folder, int index, int level, const std::string& type,
                 const std::string& size) {
  const std::string path = folder + "/index" + std::to_string(index);
  fs::create_directories(path);
  std::ofstream(path + "/level") << level << "\n";
  std::ofstream(path + "/type") << type << "\n";
  std::ofstream(path + "/size") << size << "\n";
}

TEST(Caches, OfOneCoreAsSysfsTells) {
  const TemporaryFolder folder;
  write_cache(folder.path(), 0, 1, "Data", "32K");
  write_cache(folder.path(), 1, 1, "Instruction", "64K");
  write_cache(folder.path(), 2, 2, "Unified", "512K");
  write_cache(folder.path(), 3, 3, "Unified", "32M");
  const Caches caches = caches_of_sysfs(folder.path());
  EXPECT_EQ(caches.l1d_bytes, 32 << 10);
  EXPECT_EQ(caches.l2_bytes, 512 << 10);
  EXPECT_EQ(caches.l3_bytes, 32 << 20);
}

TEST(Caches, WhatSysfsDoesNotSayIsUnknown) {
  const TemporaryFolder folder;
  EXPECT_EQ(caches_of_sysfs(folder.path() + "/nowhere").l2_bytes, 0);
  write_cache(folder.path(), 0, 2, "Unified", "many");
  write_cache(folder.path(), 1, 3, "Unified", "-4K");
  const Caches caches = caches_of_sysfs(folder.path());
  EXPECT_EQ(caches.l2_bytes, 0);
  EXPECT_EQ(caches.l3_bytes, 0);
}

TEST(Caches, AreUnknownOrPlausible) {
  for (const Caches& caches : {cpu_caches(), caches_of_cpuid()})
    for (long bytes : {caches.l1d_bytes, caches.l2_bytes, caches.l3_bytes}) {
      EXPECT_GE(bytes, 0);
      EXPECT_LT(bytes, 1L << 32);
    }
}

TEST(MachineFigures, AreTheSameAfterTheirJson) {
  const MachineFigures f = figures_of_now();
  const MachineFigures back = parse_figures(figures_json(f)).value();
  EXPECT_EQ(figures_json(back), figures_json(f));
  EXPECT_EQ(back.read_gb_per_s, f.read_gb_per_s);
  ASSERT_EQ(back.chains.size(), 1U);
  EXPECT_EQ(back.chains[0].gflops, f.chains[0].gflops);
}

TEST(MachineFigures, GiveTheRatesThatModelsRead) {
  const MachineRates r = rates_of(figures_of_now());
  EXPECT_TRUE(r.is_measured);
  EXPECT_EQ(r.f32_flops_per_ns, 170);
  EXPECT_EQ(r.bf16_flops_per_ns, 340);
  EXPECT_EQ(r.stream_bytes_per_ns, 25);
  EXPECT_EQ(r.stream_bytes_per_ns_all, 60.5);
  EXPECT_EQ(r.handoff_ns, 750);
  // Unknown figures fall back.
  const MachineRates unknown = rates_of(MachineFigures{});
  EXPECT_EQ(unknown.f32_flops_per_ns, kFallbackRates.f32_flops_per_ns);
  EXPECT_EQ(unknown.stream_bytes_per_ns, kFallbackRates.stream_bytes_per_ns);
  EXPECT_EQ(unknown.handoff_ns, kFallbackRates.handoff_ns);
}

TEST(MachineFigures, OtherTextIsRefused) {
  for (const char* text : {"", "{", "[]", "{}", "{\"f32_peak_gflops\": \"fast\"}", "null"})
    EXPECT_FALSE(parse_figures(text).ok()) << text;
  // Members of the wrong kind are unknown, not a crash.
  const MachineFigures f =
      parse_figures(R"({"f32_peak_gflops": 1, "row_chain": [1], "read_gb_per_s_by_bytes": {"a": 2},
                        "threads": "two", "handoff_us": -3, "isa_used": 7})")
          .value();
  EXPECT_EQ(f.threads, 0);
  EXPECT_EQ(f.handoff_us, 0);
  EXPECT_TRUE(f.read_gb_per_s.empty());
}

// One after the other: a process keeps its first answer.
TEST(MachineFile, KeepsWhatWasMeasuredByCpuLevelAndThreads) {
  const TemporaryFolder folder;
  const EnvironmentScope scope("EPILOGUE_CACHE_DIR", folder.path() + "/new");
  EXPECT_EQ(machine_file(), folder.path() + "/new/machine.json");
  MachineFigures f = figures_of_now();
  ASSERT_TRUE(set_machine_figures(f).ok());
  EXPECT_EQ(machine_rates().handoff_ns, 750);
  EXPECT_EQ(machine_figures()->f32_gflops, 400);
  // Figures of other threads go beside it, those of the same threads in its place.
  f.threads += 1;
  ASSERT_TRUE(set_machine_figures(f).ok());
  f.threads -= 1;
  f.handoff_us = 2;
  ASSERT_TRUE(set_machine_figures(f).ok());
  EXPECT_EQ(machine_rates().handoff_ns, 2000);
  const std::string text = read_file(machine_file()).value();
  size_t machines = 0;
  for (size_t at = text.find("cpu_identity"); at != std::string::npos;
       at = text.find("cpu_identity", at + 1))
    ++machines;
  EXPECT_EQ(machines, 2U);
}

TEST(MachineFile, ABrokenOneIsReplaced) {
  const TemporaryFolder folder;
  const EnvironmentScope scope("EPILOGUE_CACHE_DIR", folder.path());
  for (const char* text : {"{\"schema_version\": 1, \"machines\": 3}", "not JSON", "{}",
                           "{\"schema_version\": 1, \"machines\": [1, {}, null]}"}) {
    write_file(machine_file(), text).value();
    EXPECT_TRUE(set_machine_figures(figures_of_now()).ok()) << text;
    EXPECT_HAS(read_file(machine_file()).value(), "f32_peak_gflops");
  }
}

TEST(MachineFile, OffKeepsNothing) {
  const EnvironmentScope scope("EPILOGUE_CACHE_DIR", "off");
  EXPECT_EQ(cache_folder(), "");
  EXPECT_EQ(machine_file(), "");
  EXPECT_TRUE(set_machine_figures(figures_of_now()).ok()) << "this process has them";
}

TEST(MachineRates, ManyThreadsMayAsk) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) EXPECT_GT(machine_rates().handoff_ns, 0);
    });
  const EnvironmentScope scope("EPILOGUE_CACHE_DIR", "off");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(set_machine_figures(figures_of_now()).ok());
  for (std::thread& t : threads) t.join();
}

}  // namespace epilogue::machine_test
