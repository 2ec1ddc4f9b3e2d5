// SPDX-License-Identifier: Apache-2.0
#include "bench/disturbance.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "epilogue/base/error.h"

namespace epilogue::bench {
namespace {

// Twice what a core's share of a last-level cache can be.
constexpr size_t kStreamBytes = size_t{256} << 20;
// For the process to be where it is wanted.
constexpr auto kSettle = std::chrono::milliseconds(100);

// The child of a program with threads: system calls and arithmetic only.
void stay_on_last_processor() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) last = cpu;
  if (last < 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  sched_setaffinity(0, sizeof one, &one);
}

void stream_memory() {
  void* const memory =
      mmap(nullptr, kStreamBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) _exit(1);
  auto* const words = static_cast<volatile uint64_t*>(memory);
  constexpr size_t kCount = kStreamBytes / sizeof(uint64_t);
  for (;;)
    for (size_t i = 0; i < kCount; ++i) words[i] = words[i] + 1;
}

void keep_busy() {
  volatile uint64_t x = 1;
  for (;;) x = x * 6364136223846793005ULL + 1;
}

// A child that waits, stopped, until it may go on.
pid_t start(void (*disturb)()) {
  const pid_t pid = fork();
  if (pid < 0) throw Error("[bench] expected a process that disturbs, got none: fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    stay_on_last_processor();
    raise(SIGSTOP);
    disturb();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, WUNTRACED);  // until it has stopped
  return pid;
}

}  // namespace

std::string_view disturbance_name(Disturbance kind) {
  switch (kind) {
    case Disturbance::quiet: return "quiet";
    case Disturbance::memory: return "memory";
    case Disturbance::busy_core: return "busy core";
  }
  return "";
}

Disturbers::Disturbers() : memory_(start(stream_memory)), busy_(start(keep_busy)) {}

Disturbers::~Disturbers() {
  for (const pid_t pid : {memory_, busy_}) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

DisturbanceScope::DisturbanceScope(const Disturbers& all, Disturbance kind)
    : pid_(kind == Disturbance::quiet ? -1 : all.pid_of(kind)) {
  if (pid_ < 0) return;
  kill(pid_, SIGCONT);
  std::this_thread::sleep_for(kSettle);
}

DisturbanceScope::~DisturbanceScope() {
  if (pid_ >= 0) kill(pid_, SIGSTOP);
}

}  // namespace epilogue::bench
