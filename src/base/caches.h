// SPDX-License-Identifier: Apache-2.0
// The caches that one core can use.
#pragma once

#include <string>

namespace epilogue {

// Data or unified caches, in bytes; 0 where unknown. An L3 that several cores share counts whole: a
// machine's sockets or clusters of cores may have several such caches, of which a core sees one.
struct Caches {
  long l1d_bytes = 0;
  long l2_bytes = 0;
  long l3_bytes = 0;
};

// The first core's caches: from sysfs; where that is missing from CPUID, then from sysconf.
// sysconf comes last: on processors with several L3 caches it adds them up.
Caches cpu_caches();

// Reads a folder laid out as /sys/devices/system/cpu/cpu0/cache; zeros where it is not there.
Caches caches_of_sysfs(const std::string& folder);
// Asks CPUID (leaf 4, on AMD 8000001D); zeros on other processors.
Caches caches_of_cpuid();

}  // namespace epilogue
