// SPDX-License-Identifier: Apache-2.0
// Damaged files: truncated at every byte, bits flipped at random, pieces exchanged. None may crash,
// and what is accepted must lie inside the file.
#include "epilogue/io.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::safetensors_mutation_test {

using namespace io_test;

std::string valid_file() {
  const TempFolder folder;
  const std::string path = folder / "valid.safetensors";
  const NamedTensors tensors = {{"layer.weight", arange(6, DType::f32)},
                                {"layer.bias", arange(3, DType::bf16)},
                                {"mask", ones({5}, DType::boolean)},
                                {"none", empty({0, 4})},
                                {"step", arange(1)}};
  EXPECT_TRUE(save_safetensors(path, tensors, {{"format", "pt"}}).ok());
  return read_bytes(path);
}

Result<SafetensorsHeader> parse(const std::string& file) {
  // An exact copy on the heap: a read past the end is one that ASan sees.
  const std::vector<char> exact(file.begin(), file.end());
  return parse_safetensors_header(std::as_bytes(std::span(exact)), "m.safetensors");
}

// The contract of a success: the entries tile the data exactly.
void check(const Result<SafetensorsHeader>& header, size_t file_bytes) {
  if (!header.ok()) {
    EXPECT_EQ(header.failure().message.find('\n'), std::string::npos);
    EXPECT_TRUE(header.failure().message.starts_with(
        "m.safetensors: " + std::string(failure_code_name(header.failure().code))));
    return;
  }
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.value().entries) {
    ASSERT_EQ(entry.begin, end);
    ASSERT_GE(entry.end, entry.begin);
    end = entry.end;
  }
  ASSERT_EQ(header.value().data_offset + end, file_bytes);
}

TEST(SafetensorsMutation, EveryTruncationFailsCleanly) {
  const std::string file = valid_file();
  ASSERT_TRUE(parse(file).ok());
  for (size_t n = 0; n < file.size(); ++n) {
    const auto header = parse(file.substr(0, n));
    ASSERT_FALSE(header.ok()) << n << " of " << file.size() << " bytes were accepted";
    check(header, n);
  }
}

// The header is cut, and its length says so: the parser meets every half of a header.
TEST(SafetensorsMutation, EveryTruncationOfTheJsonFailsCleanly) {
  const std::string file = valid_file();
  const std::string json = file.substr(8, file.rfind('}') + 1 - 8);
  for (size_t n = 0; n < json.size(); ++n) {
    const auto header = parse(io_test::safetensors_bytes(json.substr(0, n)));
    ASSERT_FALSE(header.ok()) << n;
    check(header, n + 8);
  }
}

TEST(SafetensorsMutation, RandomBitFlipsNeverCrash) {
  const std::string file = valid_file();
  std::mt19937 random(20240601);
  int accepted = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string mutant = file;
    const unsigned flips = 1 + random() % 4;
    for (unsigned i = 0; i < flips; ++i)
      mutant[random() % mutant.size()] ^= static_cast<char>(1U << (random() % 8));
    const auto header = parse(mutant);
    check(header, mutant.size());
    accepted += header.ok() ? 1 : 0;
  }
  // Flips in the data, in names and in metadata are valid files; both outcomes must occur.
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 9'900);
}

TEST(SafetensorsMutation, RandomSplicesNeverCrash) {
  const std::string file = valid_file();
  std::mt19937 random(42);
  for (int round = 0; round < 5'000; ++round) {
    std::string json = file.substr(8, file.rfind('}') + 1 - 8);
    const size_t from = random() % json.size();
    const size_t length = random() % 24;
    const std::string piece = json.substr(from, length);
    if (random() % 2 == 0) {
      json.insert(random() % json.size(), piece);
    } else {
      json.replace(random() % (json.size() - piece.size()), piece.size(), piece);
    }
    const std::string mutant = io_test::safetensors_bytes(json, std::string(48, 'x'));
    check(parse(mutant), mutant.size());
  }
}

// The whole reader, through the mapping, with every tensor read to its last byte.
TEST(SafetensorsMutation, FlippedFilesOpenOrFailAndTheirTensorsAreReadable) {
  const TempFolder folder;
  const std::string path = folder / "m.safetensors";
  const std::string file = valid_file();
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::string mutant = file;
    mutant[8 + random() % (mutant.size() - 8)] ^= static_cast<char>(1U << (random() % 8));
    write_bytes(path, mutant);
    const auto opened = SafetensorsFile::open(path);
    if (!opened) continue;
    for (const std::string& name : opened.value().names()) {
      const auto tensor = opened.value().tensor(name);
      if (!tensor) continue;
      EXPECT_EQ(std::ssize(tensor.value().to_vector()), tensor.value().numel());
    }
  }
}

}  // namespace epilogue::safetensors_mutation_test
