// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include "epilogue/io.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::idx_test {

using namespace io_test;

std::string big_endian(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
          static_cast<char>(n)};
}

std::string idx_bytes(const std::vector<uint32_t>& dims, std::string_view data) {
  std::string out("\0\0\x08", 3);
  out += static_cast<char>(dims.size());
  for (const uint32_t dim : dims) out += big_endian(dim);
  return out.append(data);
}

std::string gzipped(std::string_view bytes) {
  const TempFolder folder;
  const std::string path = folder / "x.gz";
  gzFile file = gzopen(path.c_str(), "wb9");
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  gzclose(file);
  return io_test::read_bytes(path);
}

class Idx : public testing::Test {
 protected:
  Result<IdxFile> read(std::string_view bytes, int64_t max_items = -1) {
    write_bytes(path_, bytes);
    return read_idx(path_, max_items);
  }
  void expect_failure(std::string_view bytes, FailureCode code, std::string_view detail) {
    const auto file = read(bytes);
    ASSERT_FALSE(file.ok()) << "expected " << failure_code_name(code);
    EXPECT_EQ(file.failure().code, code);
    EXPECT_EQ(file.failure().message,
              path_ + ": " + std::string(failure_code_name(code)) + ": " + std::string(detail));
  }
  TempFolder folder_;
  std::string path_ = folder_ / "data.idx";
};

TEST_F(Idx, ReadsLabels) {
  const auto file = read(idx_bytes({3}, "\x01\x02\xff"));
  ASSERT_TRUE(file.ok()) << file.failure().message;
  EXPECT_EQ(file.value().dims, (std::vector<int64_t>{3}));
  EXPECT_EQ(file.value().data, (std::vector<uint8_t>{1, 2, 255}));
}

TEST_F(Idx, ReadsImages) {
  const auto file = read(idx_bytes({2, 1, 3}, "abcdef"));
  ASSERT_TRUE(file.ok()) << file.failure().message;
  EXPECT_EQ(file.value().dims, (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(file.value().data.size(), 6U);
}

TEST_F(Idx, ReadsGzip) {
  const std::string data(3'000'000, 'q');
  const auto file = read(gzipped(idx_bytes({3'000'000}, data)));
  ASSERT_TRUE(file.ok()) << file.failure().message;
  EXPECT_EQ(std::string(file.value().data.begin(), file.value().data.end()), data);
}

TEST_F(Idx, ReadsNothing) {
  const auto file = read(idx_bytes({0, 28, 28}, ""));
  ASSERT_TRUE(file.ok()) << file.failure().message;
  EXPECT_TRUE(file.value().data.empty());
}

TEST_F(Idx, ReadsTheFirstItems) {
  const auto file = read(idx_bytes({3, 2}, "aabbcc"), 2);
  ASSERT_TRUE(file.ok()) << file.failure().message;
  EXPECT_EQ(file.value().dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.value().data, (std::vector<uint8_t>{'a', 'a', 'b', 'b'}));
  EXPECT_EQ(read(idx_bytes({3, 2}, "aabbcc"), 0).value().data.size(), 0U);
  EXPECT_EQ(read(idx_bytes({3, 2}, "aabbcc"), 9).value().dims[0], 3);
}

TEST_F(Idx, MissingFile) {
  const auto file = read_idx("/nonexistent/x.gz");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.failure().message, "/nonexistent/x.gz: cannot read: No such file or directory");
}

TEST_F(Idx, Folder) {
  const auto file = read_idx(folder_.path());
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.failure().message, folder_.path() + ": cannot read: not a regular file");
}

TEST_F(Idx, EmptyFile) {
  expect_failure("", FailureCode::idx_header_too_small, "expected a header of 4 bytes, got 0");
}

TEST_F(Idx, HalfAHeader) {
  expect_failure(idx_bytes({1, 2}, "ab").substr(0, 9), FailureCode::idx_header_too_small,
                 "expected a header of 12 bytes, got 9");
}

TEST_F(Idx, OtherMagic) {
  expect_failure("PNG file", FailureCode::idx_invalid_magic,
                 "expected a file that starts with 00 00, got 50 4e");
}

TEST_F(Idx, OtherElementType) {
  expect_failure(std::string("\0\0\x0d\x01\0\0\0\0", 8), FailureCode::idx_unsupported_type,
                 "expected elements of type 08 (unsigned byte), got 0d");
}

TEST_F(Idx, RankZero) {
  expect_failure(idx_bytes({}, "a"), FailureCode::idx_unsupported_rank,
                 "expected 1 to 3 dimensions, got 0");
}

TEST_F(Idx, RankFour) {
  expect_failure(idx_bytes({1, 1, 1, 1}, "a"), FailureCode::idx_unsupported_rank,
                 "expected 1 to 3 dimensions, got 4");
}

TEST_F(Idx, PlainFileShorterThanItsHeaderSays) {
  expect_failure(idx_bytes({4}, "abc"), FailureCode::idx_truncated,
                 "expected 4 bytes of data as the header says, got 3");
}

TEST_F(Idx, GzipFileShorterThanItsHeaderSays) {
  expect_failure(gzipped(idx_bytes({4}, "abc")), FailureCode::idx_truncated,
                 "expected 4 bytes of data as the header says, got 3");
}

TEST_F(Idx, GzipStreamThatEndsEarly) {
  const std::string whole = gzipped(idx_bytes({300}, std::string(300, 'x')));
  for (size_t n = 2; n < whole.size(); ++n) {
    const auto file = read(whole.substr(0, n));
    ASSERT_FALSE(file.ok()) << n << " of " << whole.size() << " bytes were accepted";
  }
  expect_failure(whole.substr(0, whole.size() - 1), FailureCode::idx_truncated,
                 "expected a whole gzip stream, got one that ends early");
}

TEST_F(Idx, GzipChecksumIsChecked) {
  std::string bytes = gzipped(idx_bytes({3}, "abc"));
  bytes[bytes.size() - 8] ^= 1;
  expect_failure(bytes, FailureCode::idx_corrupt,
                 "expected a valid gzip stream, got 'incorrect data check'");
}

TEST_F(Idx, TrailingBytes) {
  expect_failure(idx_bytes({3}, "abcd"), FailureCode::idx_trailing_bytes,
                 "expected 3 bytes of data as the header says, got more");
  expect_failure(gzipped(idx_bytes({3}, "abcd")), FailureCode::idx_trailing_bytes,
                 "expected 3 bytes of data as the header says, got more");
}

TEST_F(Idx, AbsurdSizesAreRefusedWithoutMemory) {
  const uint32_t huge = 0xffffffff;
  expect_failure(idx_bytes({huge}, "abc"), FailureCode::idx_truncated,
                 "expected 4294967295 bytes of data as the header says, got 3");
  const std::string compressed = gzipped(idx_bytes({huge}, "abc"));
  expect_failure(compressed, FailureCode::idx_too_large,
                 "expected no more data than a file of " + std::to_string(compressed.size()) +
                     " bytes can hold, got the dimensions [4294967295]");
}

TEST_F(Idx, ProductOfDimensionsOverflows) {
  const uint32_t huge = 0xffffffff;
  const std::string bytes = idx_bytes({huge, huge, huge}, "abc");
  expect_failure(bytes, FailureCode::idx_too_large,
                 "expected no more data than a file of " + std::to_string(bytes.size()) +
                     " bytes can hold, got the dimensions [4294967295, 4294967295, 4294967295]");
}

TEST_F(Idx, RandomBitFlipsNeverCrash) {
  const std::string plain = idx_bytes({4, 2, 2}, "0123456789abcdef");
  const std::string compressed = gzipped(plain);
  std::mt19937 random(99);
  for (int round = 0; round < 2'000; ++round) {
    std::string mutant = round % 2 == 0 ? plain : compressed;
    mutant[random() % mutant.size()] ^= static_cast<char>(1U << (random() % 8));
    const auto file = read(mutant);
    if (!file) continue;
    EXPECT_LE(file.value().data.size(), 16U);
  }
}

}  // namespace epilogue::idx_test
