// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/cpu_detect.h"

namespace epilogue {
namespace {

using enum CpuFeature;

constexpr IsaFeatures kTable[] = {
    {Isa::baseline, "baseline", {}, {}},
    {Isa::avx2, "avx2", {avx2}, {avx_vnni}},
    {Isa::avx512, "avx512", {avx2, avx512}, {avx512_vnni}},
    {Isa::avx512_bf16, "avx512_bf16", {avx2, avx512, avx512_bf16}, {avx512_vnni}},
    {Isa::amx, "amx", {avx2, avx512, avx512_bf16, amx_bf16}, {avx512_vnni, amx_int8}},
};

static_assert(std::size(kTable) == std::size(kIsas));

constexpr bool rows_follow_the_enumerators() {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (kTable[i].isa != static_cast<Isa>(i)) return false;
  return true;
}
static_assert(rows_follow_the_enumerators());

const IsaFeatures& row(Isa isa) { return kTable[static_cast<size_t>(isa)]; }

// The set in use in the upper half, the features in use in the lower: kernels are looked up by
// these several times per op, so that they cost one load.
constexpr int64_t kUnset = -1;
std::atomic<int64_t> active{kUnset};

int64_t use(Isa isa) {
  const IsaFeatures& r = row(isa);
  const int64_t state =
      int64_t{static_cast<uint8_t>(isa)} << 32 | (detected_features() & (r.needs | r.may)).bits();
  active.store(state, std::memory_order_release);
  return state;
}

std::string unsupported(Isa isa) {
  return "this machine has " + std::string(isa_name(detected_isa())) + ", not " +
         std::string(isa_name(isa));
}

Isa from_environment() {
  const char* wanted = std::getenv("EPILOGUE_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected_isa();
  const Isa isa = parse_isa(wanted).value();
  if (!is_available(isa)) throw Error("[EPILOGUE_ISA] " + unsupported(isa));
  return isa;
}

}  // namespace

std::span<const IsaFeatures> isa_table() { return kTable; }

std::string_view isa_name(Isa isa) { return row(isa).name; }

Result<Isa> parse_isa(std::string_view name) {
  std::string names;
  for (const IsaFeatures& r : kTable) {
    if (r.name == name) return r.isa;
    if (&r != kTable) names += &r + 1 == std::end(kTable) ? " or " : ", ";
    names += r.name;
  }
  return Failure{FailureCode::unknown_isa,
                 "[isa] expected " + names + ", got '" + std::string(name) + "'"};
}

CpuFeatures detected_features() {
  static const CpuFeatures features = detect_features();
  return features;
}

bool is_available(Isa isa) { return detected_features().has_all(row(isa).needs); }

std::span<const Isa> available_isas() {
  static const std::vector<Isa> list = [] {
    std::vector<Isa> all;
    for (const IsaFeatures& r : kTable)
      if (is_available(r.isa)) all.push_back(r.isa);
    return all;
  }();
  return list;
}

Isa detected_isa() { return available_isas().back(); }

namespace {

int64_t active_state() {
  const int64_t now = active.load(std::memory_order_acquire);
  return now != kUnset ? now : use(from_environment());
}

}  // namespace

Isa active_isa() { return static_cast<Isa>(active_state() >> 32); }

CpuFeatures active_features() {
  return CpuFeatures::of_bits(static_cast<uint32_t>(active_state()));
}

void set_active_isa(Isa isa) {
  if (!is_available(isa)) throw Error("[set_active_isa] " + unsupported(isa));
  use(isa);
}

std::string_view cpu_model_name() {
  static const std::string name = [] {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("model name")) {
        const size_t colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
      }
    return std::string("unknown CPU");
  }();
  return name;
}

bool is_intel_cpu() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace epilogue
