// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace epilogue {
namespace {

#if defined(__x86_64__)
// AMX state is saved by the kernel only if XCR0 says so (bits 17 and 18), and Linux makes a process
// ask for the tiles' memory once.
bool os_grants_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1U << 27)) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & (3U << 17)) != (3U << 17)) return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return true;
#endif
}

Isa detect() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::baseline;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29)) != 0;
  if (!f16c) return Isa::baseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return Isa::avx2;
  unsigned amx = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) amx = d;
  unsigned bf16 = 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) bf16 = a;
  if ((bf16 & (1U << 5)) == 0) return Isa::avx512;
  const bool has_amx = (amx & (1U << 22)) != 0 && (amx & (1U << 24)) != 0 && os_grants_amx();
  return has_amx ? Isa::amx : Isa::avx512_bf16;
}
#else
Isa detect() { return Isa::baseline; }
#endif

constexpr int kUnset = -1;
std::atomic<int> active{kUnset};

std::string unsupported(Isa isa) {
  return "this machine has " + std::string(isa_name(detected_isa())) + ", not " +
         std::string(isa_name(isa));
}

Isa from_environment() {
  const char* wanted = std::getenv("EPILOGUE_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected_isa();
  const Isa isa = parse_isa(wanted).value();
  if (isa > detected_isa()) throw Error("[EPILOGUE_ISA] " + unsupported(isa));
  return isa;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::amx: return "amx";
  }
  return "unknown";
}

Result<Isa> parse_isa(std::string_view name) {
  for (Isa isa : kIsas)
    if (isa_name(isa) == name) return isa;
  return Failure{"UnknownIsa", "[isa] expected baseline, avx2, avx512, avx512_bf16 or amx, got '" +
                                   std::string(name) + "'"};
}

Isa detected_isa() {
  static const Isa isa = detect();
  return isa;
}

Isa active_isa() {
  const int now = active.load(std::memory_order_acquire);
  if (now != kUnset) return static_cast<Isa>(now);
  const Isa isa = from_environment();
  active.store(static_cast<int>(isa), std::memory_order_release);
  return isa;
}

void set_active_isa(Isa isa) {
  if (isa > detected_isa()) throw Error("[set_active_isa] " + unsupported(isa));
  active.store(static_cast<int>(isa), std::memory_order_release);
}

Caches cpu_caches() {
  return {.l1d_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE),
          .l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE),
          .l3_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE)};
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

}  // namespace epilogue
