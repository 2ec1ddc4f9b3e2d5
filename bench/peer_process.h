// SPDX-License-Identifier: Apache-2.0
// A program that is asked one line and answers one line, over its stdin and stdout.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"

namespace epilogue::bench {

// Not thread-safe.
class PeerProcess {
 public:
  // argv[0] is looked up in PATH. The program's stderr goes to the file `log`.
  // Code: PeerStart.
  static Result<PeerProcess> start(const std::vector<std::string>& argv, const std::string& log);
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;
  // Ends its input; a program that has not ended a second later is killed.
  ~PeerProcess();

  // Sends `line` (without a line feed in it) and waits, asleep, for the answer. After a failure the
  // process is of no more use. Codes: PeerDied, PeerTimeout.
  Result<std::string> ask(std::string_view line, int timeout_ms);

 private:
  PeerProcess(pid_t pid, int channel) : pid_(pid), channel_(channel) {}
  pid_t pid_ = -1;
  int channel_ = -1;
  std::string received_;  // beyond the last answer
};

}  // namespace epilogue::bench
