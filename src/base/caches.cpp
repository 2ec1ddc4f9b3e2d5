// SPDX-License-Identifier: Apache-2.0
#include "base/caches.h"

#include <unistd.h>

#include <fstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace epilogue {
namespace {

constexpr int kMostCaches = 16;

void set_level(Caches& caches, int level, long bytes) {
  if (bytes <= 0) return;
  if (level == 1) caches.l1d_bytes = bytes;
  if (level == 2) caches.l2_bytes = bytes;
  if (level == 3) caches.l3_bytes = bytes;
}

// "48K", "32M", "1024"; 0 where it is none of these.
long parse_size(const std::string& text) {
  char* end = nullptr;
  const long number = std::strtol(text.c_str(), &end, 10);
  if (number <= 0) return 0;
  switch (*end) {
    case 'K': return number << 10;
    case 'M': return number << 20;
    case 'G': return number << 30;
    case '\0': return number;
    default: return 0;
  }
}

// Where `more` knows what `caches` does not.
void fill_gaps(Caches& caches, const Caches& more) {
  if (caches.l1d_bytes == 0) caches.l1d_bytes = more.l1d_bytes;
  if (caches.l2_bytes == 0) caches.l2_bytes = more.l2_bytes;
  if (caches.l3_bytes == 0) caches.l3_bytes = more.l3_bytes;
}

}  // namespace

Caches caches_of_sysfs(const std::string& folder) {
  Caches caches;
  for (int i = 0; i < kMostCaches; ++i) {
    const std::string index = folder + "/index" + std::to_string(i) + "/";
    int level = 0;
    std::string type;
    std::string size;
    if (!(std::ifstream(index + "level") >> level)) break;
    std::ifstream(index + "type") >> type;
    std::ifstream(index + "size") >> size;
    if (type != "Instruction") set_level(caches, level, parse_size(size));
  }
  return caches;
}

#if defined(__x86_64__)
Caches caches_of_cpuid() {
  constexpr unsigned kIntelLeaf = 4;
  constexpr unsigned kAmdLeaf = 0x8000001D;
  constexpr unsigned kInstruction = 2;
  Caches caches;
  for (const unsigned leaf : {kAmdLeaf, kIntelLeaf}) {
    for (unsigned i = 0; i < kMostCaches; ++i) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      if (__get_cpuid_count(leaf, i, &a, &b, &c, &d) == 0) break;
      const unsigned type = a & 31;
      if (type == 0) break;
      const long line = (b & 0xFFF) + 1;
      const long partitions = (b >> 12 & 0x3FF) + 1;
      const long ways = (b >> 22) + 1;
      const long sets = long{c} + 1;
      if (type != kInstruction)
        set_level(caches, static_cast<int>(a >> 5 & 7), line * partitions * ways * sets);
    }
    if (caches.l1d_bytes > 0) break;
  }
  return caches;
}
#else
Caches caches_of_cpuid() { return {}; }
#endif

Caches cpu_caches() {
  Caches caches = caches_of_sysfs("/sys/devices/system/cpu/cpu0/cache");
  fill_gaps(caches, caches_of_cpuid());
  fill_gaps(caches, {.l1d_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE),
                     .l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE),
                     .l3_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE)});
  return caches;
}

}  // namespace epilogue
