// SPDX-License-Identifier: Apache-2.0
#include "bench/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"

extern char** environ;

namespace epilogue::bench {
namespace {

constexpr int64_t kEndNs = 1'000'000'000;
constexpr useconds_t kEndPollUs = 5'000;

// Starts argv with `channel` as stdin and stdout; errno's value, 0 where it runs.
int spawn(const std::vector<std::string>& argv, int channel, const std::string& log, pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, channel, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, channel, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

Failure died() { return {FailureCode::peer_died, "the process ended without an answer"}; }

}  // namespace

Result<PeerProcess> PeerProcess::start(const std::vector<std::string>& argv,
                                       const std::string& log) {
  // A socket, not pipes: writing to one whose reader is gone raises no signal.
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Failure{FailureCode::peer_start, std::string("socketpair: ") + std::strerror(errno)};
  pid_t pid = -1;
  const int error = spawn(argv, ends[1], log, pid);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return Failure{FailureCode::peer_start, argv[0] + ": " + std::strerror(error)};
  }
  return PeerProcess(pid, ends[0]);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      channel_(std::exchange(other.channel_, -1)),
      received_(std::move(other.received_)) {}

PeerProcess::~PeerProcess() {
  if (pid_ < 0) return;
  close(channel_);
  const int64_t deadline = monotonic_ns() + kEndNs;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (monotonic_ns() > deadline) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      return;
    }
    usleep(kEndPollUs);
  }
}

Result<std::string> PeerProcess::ask(std::string_view line, int timeout_ms) {
  const std::string request = std::string(line) + "\n";
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t n = send(channel_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return died();
    sent += static_cast<size_t>(n);
  }
  const int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
  for (;;) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string answer = received_.substr(0, end);
      received_.erase(0, end + 1);
      return answer;
    }
    const int64_t left_ms = (deadline - monotonic_ns()) / 1'000'000;
    pollfd wait = {channel_, POLLIN, 0};
    const int ready = left_ms > 0 ? poll(&wait, 1, static_cast<int>(left_ms)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0)
      return Failure{FailureCode::peer_timeout,
                     "no answer within " + std::to_string(timeout_ms / 1000) + " seconds"};
    char buffer[4096];
    const ssize_t n = read(channel_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return died();
    received_.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace epilogue::bench
