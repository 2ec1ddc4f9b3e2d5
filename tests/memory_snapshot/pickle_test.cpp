// SPDX-License-Identifier: Apache-2.0
// The reader of pickles: what Python wrote in each protocol is read alike, and no bytes do anything
// but fail.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "epilogue/trace/memory_snapshot.h"
#include "memory_snapshot/snapshot_data.h"

namespace epilogue::trace {
namespace pickle_test {
namespace {

using namespace std::string_literals;

std::string file_bytes(const std::string& name) {
  std::ifstream file(std::string(EPILOGUE_TEST_DATA) + "/memory_snapshots/" + name,
                     std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<MemorySnapshot> read(std::string_view bytes) {
  return read_memory_snapshot_bytes(bytes, "made.pickle");
}

// A text of at most 255 bytes, as protocol 4 has it.
std::string text(std::string_view s) {
  return "\x8c"s + static_cast<char>(s.size()) + std::string(s);
}
std::string with_size(char opcode, uint64_t size, int bytes) {
  std::string out(1, opcode);
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(size >> (8 * i));
  return out;
}
// A snapshot whose device 0 recorded these events.
std::string snapshot_of(const std::string& events) {
  return "\x80\x05}("s + text("segments") + "]" + text("device_traces") + "](](" + events + "eeu.";
}
std::string event(const std::string& more) {
  return "}(" + text("action") + text("alloc") + more + "u";
}

TEST(Pickle, AllProtocolsGiveTheSameTables) {
  const MemorySnapshot first = read(file_bytes("train_protocol_2.pickle")).value();
  EXPECT_GT(first.event_count(), 100u);
  EXPECT_GT(first.blocks.size(), 20u);
  for (const char* name :
       {"train_protocol_3.pickle", "train_protocol_4.pickle", "train_protocol_5.pickle"}) {
    const MemorySnapshot other = read(file_bytes(name)).value();
    ASSERT_EQ(other.event_count(), first.event_count()) << name;
    ASSERT_EQ(other.blocks.size(), first.blocks.size());
    ASSERT_EQ(other.stack_count(), first.stack_count());
    for (uint32_t i = 0; i < first.event_count(); ++i) {
      EXPECT_EQ(other.event(i).address, first.event(i).address);
      EXPECT_EQ(other.event(i).bytes, first.event(i).bytes);
      EXPECT_EQ(other.event(i).stack, first.event(i).stack);
      EXPECT_EQ(other.event(i).action, first.event(i).action);
    }
    EXPECT_EQ(other.settings, first.settings);
    EXPECT_EQ(other.pools, first.pools);
    EXPECT_EQ(other.annotations.size(), first.annotations.size());
  }
}

TEST(Pickle, ReadsEveryFieldOfAnEvent) {
  const std::string frames = text("frames") + "](}(" + text("filename") + text("a.py") +
                             text("line") + "M\x39\x05" + text("name") + text("f") + "ue";
  const std::string bytes = snapshot_of(
      event(text("addr") + "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"s + text("size") +
            "J\x00\x02\x00\x00"s + text("stream") + "K\x07" + text("time_us") +
            "\x8a\x08\x01\x00\x00\x00\x00\x00\x00\x01"s + text("pool_id") + "K\x01K\x02\x86" +
            text("user_metadata") + text("step 3") + frames));
  const MemorySnapshot snapshot = read(bytes).value();
  ASSERT_EQ(snapshot.event_count(), 1u);
  const SnapshotEvent& e = snapshot.event(0);
  EXPECT_EQ(e.action, SnapshotAction::alloc);
  EXPECT_EQ(e.address, uint64_t{1} << 63);
  EXPECT_EQ(e.bytes, 512);
  EXPECT_EQ(snapshot.streams[e.stream], 7);
  EXPECT_EQ(e.time_us, (int64_t{1} << 56) + 1);
  EXPECT_EQ(snapshot.pools[e.pool], std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(snapshot.text(e.metadata), "step 3");
  ASSERT_EQ(snapshot.stack(e.stack).size(), 1u);
  const SnapshotFrame& f = snapshot.frame(snapshot.stack(e.stack)[0]);
  EXPECT_EQ(snapshot.text(f.file), "a.py");
  EXPECT_EQ(snapshot.text(f.name), "f");
  EXPECT_EQ(f.line, 1337);
}

TEST(Pickle, ListsOfMoreThanAThousandComeInParts) {
  std::string many;
  for (int part = 0; part < 3; ++part) {
    many += "(";
    for (int i = 0; i < 1000; ++i) many += event(text("size") + "K\x05");
    many += "e";
  }
  const std::string bytes = "\x80\x04}("s + text("device_traces") + "](]" + many + "eu.";
  const MemorySnapshot snapshot = read(bytes).value();
  ASSERT_EQ(snapshot.traces.size(), 1u);
  EXPECT_EQ(snapshot.traces[0].events, 3000u);
  EXPECT_EQ(snapshot.traces[0].ranges.size(), 1u);
}

TEST(Pickle, ASharedEmptyListIsNoRecursion) {
  const std::string bytes =
      "\x80\x04}("s + text("segments") + "]\x94" + text("device_traces") + "h\x00u."s;
  EXPECT_TRUE(read(bytes).ok());
}

TEST(Pickle, AFrameTwiceInAStackIsOneFrame) {
  const std::string one =
      "}\x94(" + text("filename") + text("a.py") + text("name") + text("f") + "u";
  const std::string bytes = snapshot_of(event(text("frames") + "](" + one + "h\x00"s + "e"));
  const MemorySnapshot snapshot = read(bytes).value();
  ASSERT_EQ(snapshot.stack(snapshot.event(0).stack).size(), 2u);
  EXPECT_EQ(snapshot.stack(1)[0], snapshot.stack(1)[1]);
}

struct Hostile {
  std::string name;
  std::string bytes;
  std::string says;  // part of the message
};

// A file that appears if something was run.
const std::string kCanary = "/tmp/epilogue_pickle_test_canary_" + std::to_string(::getpid());

std::vector<Hostile> hostile() {
  const std::string p = "\x80\x04";
  const std::string argument = text("touch " + kCanary);
  const std::string system = text("os") + text("system") + "\x93";
  return {
      {"global",
       "\x80\x02"
       "cos\nsystem\n(" +
           with_size('X', argument.size() - 2, 4) + argument.substr(2) + "tR.",
       "opcode GLOBAL at byte 2 "},
      {"stack global", p + system + argument + "\x85R.", "opcode STACK_GLOBAL at byte 14 "},
      {"reduce", p + text("x") + argument + "\x85R.", "opcode REDUCE"},
      {"inst", p + "(" + argument + "ios\nsystem\n.", "opcode INST"},
      {"obj", p + "(" + text("os.system") + argument + "o.", "opcode OBJ"},
      {"build", p + "}}b.", "opcode BUILD at byte 4 "},
      {"newobj", p + text("C") + ")\x81.", "opcode NEWOBJ"},
      {"newobj ex", p + text("C") + ")}\x92.", "opcode NEWOBJ_EX"},
      {"ext1", p + "\x82\x01.", "opcode EXT1"},
      {"ext2", p + "\x83\x01\x01.", "opcode EXT2"},
      {"ext4", p + "\x84\x01\x01\x01\x01.", "opcode EXT4"},
      {"persid", p + "Pevil\n.", "opcode PERSID"},
      {"binpersid", p + text("evil") + "Q.", "opcode BINPERSID"},
      {"code deep within data", snapshot_of(event(text("frames") + "cos\nsystem\n")),
       "opcode GLOBAL"},
      {"out of band buffer", p + "\x97.", "NEXT_BUFFER"},
      {"readonly buffer", p + "N\x98.", "READONLY_BUFFER"},
      {"no opcode", p + "\xff.", "0xff"},
      {"protocol 0", "(dp0\nS'segments'\np1\n(lp2\ns.", "protocols 2 to 5"},
      {"opcode of protocol 0", p + "I12\n.", "opcode INT at byte 2 is of protocol 0"},
      {"protocol 6", "\x80\x06N.", "protocol 6"},
      {"empty", "", "empty file"},
      {"nothing but a protocol", p, "ends early"},
      {"text longer than the file", p + with_size('X', 1000, 4) + "abc.", "ends early"},
      {"text of 2^63 bytes", p + with_size('\x8d', uint64_t{1} << 63, 8) + "abc.",
       "at most 67108864 are read"},
      {"bytes of 2^62", p + with_size('\x8e', uint64_t{1} << 62, 8) + ".", "at most"},
      {"bytearray of 2^40", p + with_size('\x96', uint64_t{1} << 40, 8) + ".", "at most"},
      {"long of 2 GiB", p + with_size('\x8b', 0x7fffffff, 4) + ".", "ends early"},
      {"long of negative size", p + with_size('\x8b', 0xffffffff, 4) + ".", "negative"},
      {"memo index of 4 G", p + "Nr\xff\xff\xff\xff.", "memo index 4294967295"},
      {"memo index of a million", p + "N" + with_size('r', 1000000, 4) + ".", "memo index 1000000"},
      {"get what was never put", p + "h\x05.", "memo index 5 of 0"},
      {"get of 4 G", p + "j\xff\xff\xff\xff.", "memo index"},
      {"pop of nothing", p + "0.", "on the stack"},
      {"pop through a mark", p + "N(0.", "on the stack"},
      {"pop_mark without mark", p + "1.", "expected a mark"},
      {"setitems without dict", p + "(NNu.", "expected a dict"},
      {"setitems on a number", p + "K\x01(NNu.", "expected a dict"},
      {"key without value", p + "}(Nu.", "a key without a value"},
      {"append to nothing", p + "Na.", "on the stack"},
      {"append to a text", p + text("x") + "Na.", "expected a list"},
      {"list within itself",
       p + "]\x94h\x00"
           "a."s,
       "holds itself"},
      {"dict within itself", p + "}\x94(" + text("a") + "h\x00u."s, "holds itself"},
      {"empty list twice, then grown", p + "]2Na.", "two places"},
      {"a million marks", p + std::string(1'000'000, '('), "more than 1000 containers"},
      {"stop below a mark", p + "N(.", "expected one value"},
      {"stop with two values", p + "NN.", "expected one value"},
      {"stop with none", p + ".", "expected one value"},
      {"json", "{\"traceEvents\": []}", "epilogue explain"},
      {"a list of numbers",
       p + "](K\x01K\x02"
           "e.",
       "no memory snapshot"},
      {"a number", p + "K\x01.", "no memory snapshot"},
      {"a dict of something else", p + "}(" + text("weights") + "Nu.", "'segments'"},
  };
}

TEST(Pickle, HostileInputFailsWithOneLineAndRunsNothing) {
  std::remove(kCanary.c_str());
  const std::vector<Hostile> corpus = hostile();
  ASSERT_GE(corpus.size(), 20u);
  for (const Hostile& h : corpus) {
    const Result<MemorySnapshot> result = read(h.bytes);
    ASSERT_FALSE(result.ok()) << h.name;
    EXPECT_EQ(failure_code_name(result.failure().code), "NotATrace")
        << h.name << ": " << result.failure().message;
    EXPECT_NE(result.failure().message.find(h.says), std::string::npos)
        << h.name << ": " << result.failure().message;
    EXPECT_TRUE(result.failure().message.starts_with("made.pickle: ")) << result.failure().message;
    EXPECT_EQ(result.failure().message.find('\n'), std::string::npos) << h.name;
    EXPECT_NE(::access(kCanary.c_str(), F_OK), 0) << h.name;
  }
}

// Deep nesting without marks, and containers that hold each other ten times over, are data of few
// bytes.
TEST(Pickle, NestingAndSharingCostNoMore) {
  const std::string deep =
      "\x80\x04"s + std::string(200'000, ']') + std::string(199'999, 'a') + ".";
  EXPECT_EQ(read(deep).failure().code, FailureCode::not_a_trace);
  std::string laughs = "\x80\x04](NNe\x94"s;
  for (int i = 0; i < 100; ++i) {
    laughs += "](";
    for (int j = 0; j < 10; ++j) laughs += "h"s + static_cast<char>(i);
    laughs += "e\x94";
  }
  laughs +=
      "](h\x64"
      "e.";
  EXPECT_FALSE(read(laughs).ok());
}

TEST(Pickle, MemoryIsBoundedByTheInput) {
  const std::string wide = "\x80\x04"s + std::string(40'000'000, 'N');
  const auto failure = read(wide).failure();
  EXPECT_NE(failure.message.find("bytes of memory"), std::string::npos) << failure.message;
  const std::string lists = "\x80\x04"s + std::string(20'000'000, ']') + ".";
  EXPECT_FALSE(read(lists).ok());
  rusage usage{};
  ASSERT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, 600 * 1024);
}

// A snapshot cut anywhere, and with any one byte changed, is a snapshot or a failure of one line.
TEST(Pickle, CutAndChangedFilesNeverCrash) {
  const std::string whole = file_bytes("train_protocol_4.pickle");
  ASSERT_GT(whole.size(), 10'000u);
  for (size_t size = 0; size < whole.size(); size += size < 3000 ? 1 : 97) {
    const Result<MemorySnapshot> result = read(std::string_view(whole).substr(0, size));
    ASSERT_FALSE(result.ok()) << size;
    EXPECT_EQ(result.failure().message.find('\n'), std::string::npos);
  }
  int fine = 0;
  for (size_t at = 0; at < whole.size(); at += 7)
    for (const char change : {'\x01', '\x40', '\x80'}) {
      std::string broken = whole;
      broken[at] = static_cast<char>(broken[at] ^ change);
      const Result<MemorySnapshot> result = read(broken);
      if (result.ok())
        ++fine;
      else
        EXPECT_EQ(result.failure().message.find('\n'), std::string::npos)
            << result.failure().message;
    }
  EXPECT_GT(fine, 0);
}

}  // namespace
}  // namespace pickle_test
}  // namespace epilogue::trace
