// SPDX-License-Identifier: Apache-2.0
// A wheel brings this function of glibc itself. libstdc++'s random_device was built against glibc 2.36 and calls arc4random,
// which older ones lack; cpp-httplib seeds the boundary of multipart answers by it.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

// 32 random bits of the kernel, as glibc's. Like glibc's it ends the process where the kernel has none.
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t bits;
  while (getrandom(&bits, sizeof bits, 0) != sizeof bits) {
    if (errno != EINTR) abort();
  }
  return bits;
}
