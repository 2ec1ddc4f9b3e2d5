// SPDX-License-Identifier: Apache-2.0
#include "bench/peer_process.h"

#include "base/file.h"
#include "support/test.h"

namespace epilogue::bench::peer_process_test {

constexpr int kMs = 20'000;

std::string log_file() { return ::testing::TempDir() + "peer_process_test.log"; }

Result<PeerProcess> shell(const std::string& script) {
  return PeerProcess::start({"sh", "-c", script}, log_file());
}

TEST(PeerProcess, AnswersLineByLine) {
  auto peer = shell("while read line; do echo \"got $line\"; done").value();
  EXPECT_EQ(peer.ask("one", kMs).value(), "got one");
  EXPECT_EQ(peer.ask("two words", kMs).value(), "got two words");
  const std::string large(100'000, 'x');
  EXPECT_EQ(peer.ask(large, kMs).value(), "got " + large);
}

TEST(PeerProcess, LinesThatComeTogetherAreAnsweredOneByOne) {
  auto peer = shell("read line; printf 'a\\nb\\n'; read line; sleep 100").value();
  EXPECT_EQ(peer.ask("1", kMs).value(), "a");
  EXPECT_EQ(peer.ask("2", kMs).value(), "b");
}

TEST(PeerProcess, ADeadProcessIsAFailureNotASignal) {
  auto peer = shell("echo last words >&2; exit 3").value();
  EXPECT_EQ(peer.ask("hello", kMs).failure().code, FailureCode::peer_died);
  EXPECT_EQ(peer.ask("hello", kMs).failure().code, FailureCode::peer_died);
  EXPECT_EQ(read_file(log_file()).value(), "last words\n");
}

TEST(PeerProcess, NoAnswerIsATimeout) {
  auto peer = shell("sleep 100").value();
  EXPECT_EQ(peer.ask("hello", 50).failure().code, FailureCode::peer_timeout);
}

TEST(PeerProcess, AProgramThatIsNotThereIsAFailure) {
  const auto peer = PeerProcess::start({"/nonexistent/python"}, log_file());
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.failure().code, FailureCode::peer_start);
  EXPECT_HAS(peer.failure().message, "/nonexistent/python: No such file");
}

}  // namespace epilogue::bench::peer_process_test
