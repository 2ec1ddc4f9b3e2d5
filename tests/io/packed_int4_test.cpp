// SPDX-License-Identifier: Apache-2.0
// Weights of 4 bits in the formats of GPTQ and AWQ, packed here as the formats are defined; headers
// that lie.
#include "epilogue/io.h"
#include "epilogue/rounded_file.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::packed_int4_test {

using namespace io_test;

// A weight by its definition: w[n][k] = scale[g][n] * (q[k][n] - z[g][n]).
struct Plain {
  Plain(int64_t outputs, int64_t inputs, int64_t group, int least_zero, int most_zero)
      : n(outputs),
        k(inputs),
        groups(inputs / group),
        q(static_cast<size_t>(inputs), std::vector<int>(static_cast<size_t>(outputs))),
        z(static_cast<size_t>(groups), std::vector<int>(static_cast<size_t>(outputs))),
        scale(static_cast<size_t>(groups), std::vector<Half>(static_cast<size_t>(outputs))) {
    std::mt19937 generator(7);
    std::uniform_int_distribution<int> steps(0, 15);
    std::uniform_int_distribution<int> zeros(least_zero, most_zero);
    std::uniform_real_distribution<float> scales(0.001F, 0.1F);
    for (auto& row : q)
      for (int& x : row) x = steps(generator);
    for (auto& row : z)
      for (int& x : row) x = zeros(generator);
    for (auto& row : scale)
      for (Half& x : row) x = Half(scales(generator));
    for (int64_t j = 0; j < k; ++j) g_idx.push_back(static_cast<int32_t>(j / group));
  }
  double value(int64_t i, int64_t j) const {
    const auto g = static_cast<size_t>(g_idx[static_cast<size_t>(j)]);
    const auto c = static_cast<size_t>(i);
    return double{static_cast<float>(scale[g][c])} * (q[static_cast<size_t>(j)][c] - z[g][c]);
  }

  int64_t n, k, groups;
  std::vector<std::vector<int>> q;  // [k][n]
  std::vector<std::vector<int>> z;  // [groups][n]
  std::vector<std::vector<Half>> scale;
  std::vector<int32_t> g_idx;
};

std::string bytes_of(const std::vector<uint32_t>& words) {
  std::string out;
  for (const uint32_t w : words)
    for (int b = 0; b < 4; ++b) out += static_cast<char>(w >> (8 * b) & 255);
  return out;
}

// rows [r][n] of 4 bits, eight columns to a word: nibble i is column 8 c + order[i].
std::string by_columns(const std::vector<std::vector<int>>& rows, const std::array<int, 8>& order,
                       int added = 0) {
  std::vector<uint32_t> words;
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); c += 8) {
      uint32_t word = 0;
      for (size_t i = 0; i < 8; ++i)
        word |= static_cast<uint32_t>(row[c + static_cast<size_t>(order[i])] + added) << (4 * i);
      words.push_back(word);
    }
  return bytes_of(words);
}
constexpr std::array<int, 8> kStraight = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr std::array<int, 8> kAwq = {0, 2, 4, 6, 1, 3, 5, 7};

struct Entry {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};
using Entries = std::map<std::string, Entry>;

std::string file_of(const Entries& entries) {
  std::string json = "{";
  std::string data;
  for (const auto& [name, e] : entries) {
    json +=
        (json.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"" + e.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < e.shape.size(); ++i)
      json += (i == 0 ? "" : ",") + std::to_string(e.shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
            std::to_string(data.size() + e.data.size()) + "]}";
    data += e.data;
  }
  return safetensors_bytes(json + "}", data);
}

std::string scale_bytes(const Plain& w) {
  std::string out;
  for (const auto& row : w.scale)
    for (const Half s : row) {
      out += static_cast<char>(s.bits & 255);
      out += static_cast<char>(s.bits >> 8);
    }
  return out;
}

Entries gptq_entries(const Plain& w, int stored_less) {
  // Eight inputs to a word, the first in its lowest bits.
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < w.k / 8; ++r)
    for (int64_t c = 0; c < w.n; ++c) {
      uint32_t word = 0;
      for (int64_t i = 0; i < 8; ++i)
        word |= static_cast<uint32_t>(w.q[static_cast<size_t>(8 * r + i)][static_cast<size_t>(c)])
                << (4 * i);
      words.push_back(word);
    }
  std::vector<uint32_t> order(w.g_idx.begin(), w.g_idx.end());
  return {{"m.qweight", {"I32", {w.k / 8, w.n}, bytes_of(words)}},
          {"m.qzeros", {"I32", {w.groups, w.n / 8}, by_columns(w.z, kStraight, -stored_less)}},
          {"m.scales", {"F16", {w.groups, w.n}, scale_bytes(w)}},
          {"m.g_idx", {"I32", {w.k}, bytes_of(order)}}};
}

Entries awq_entries(const Plain& w) {
  return {{"m.qweight", {"I32", {w.k, w.n / 8}, by_columns(w.q, kAwq)}},
          {"m.qzeros", {"I32", {w.groups, w.n / 8}, by_columns(w.z, kAwq)}},
          {"m.scales", {"F16", {w.groups, w.n}, scale_bytes(w)}}};
}

SafetensorsFile opened(const TempFolder& folder, const Entries& entries) {
  write_bytes(folder / "a.safetensors", file_of(entries));
  return SafetensorsFile::open(folder / "a.safetensors").value();
}

// Bit for bit: every value is a product of two numbers of few bits, exact in f32.
void expect_exact(const Int4Weight& got, const Plain& w) {
  ASSERT_EQ(got.n, w.n);
  ASSERT_EQ(got.k, w.k);
  const std::vector<double> values = got.dequantised().to_vector();
  for (int64_t i = 0; i < w.n; ++i)
    for (int64_t j = 0; j < w.k; ++j)
      ASSERT_EQ(values[static_cast<size_t>(i * w.k + j)], w.value(i, j)) << i << ", " << j;
}

TEST(PackedInt4, GptqOfBothFormatsIsExact) {
  const TempFolder folder;
  for (const int64_t group : {32, 64, 128}) {
    const Plain first(24, 256, group, 1, 16);
    expect_exact(read_gptq(opened(folder, gptq_entries(first, 1)), "m").value(), first);
    const Plain second(24, 256, group, 0, 15);
    expect_exact(
        read_gptq(opened(folder, gptq_entries(second, 0)), "m.", GptqZeros::as_they_are).value(),
        second);
  }
}

TEST(PackedInt4, GptqWithoutGroupIndicesAndWithOneGroup) {
  const TempFolder folder;
  const Plain w(8, 96, 96, 1, 16);
  Entries entries = gptq_entries(w, 1);
  entries.erase("m.g_idx");
  expect_exact(read_gptq(opened(folder, entries), "m").value(), w);
}

TEST(PackedInt4, GptqInAnOrderOfItsOwnIsExact) {
  const TempFolder folder;
  Plain w(16, 128, 32, 1, 16);
  std::shuffle(w.g_idx.begin(), w.g_idx.end(), std::mt19937(3));
  const Int4Weight got = read_gptq(opened(folder, gptq_entries(w, 1)), "m").value();
  EXPECT_TRUE(got.order.defined());
  expect_exact(got, w);
}

TEST(PackedInt4, SymmetricWeightsNeedNoZeros) {
  const TempFolder folder;
  const Plain w(8, 64, 32, 8, 8);
  const Int4Weight got = read_gptq(opened(folder, gptq_entries(w, 1)), "m").value();
  EXPECT_FALSE(got.zeros.defined());
  EXPECT_FALSE(got.order.defined());
  expect_exact(got, w);
}

TEST(PackedInt4, AwqIsExact) {
  const TempFolder folder;
  for (const int64_t group : {32, 128}) {
    const Plain w(40, 256, group, 0, 15);
    expect_exact(read_awq(opened(folder, awq_entries(w)), "m").value(), w);
  }
}

TEST(PackedInt4, TheFormatsDifferWhereTheyShould) {
  const TempFolder folder;
  const Plain w(32, 64, 32, 1, 15);
  const Int4Weight less = read_gptq(opened(folder, gptq_entries(w, 1)), "m").value();
  const Int4Weight as_is =
      read_gptq(opened(folder, gptq_entries(w, 1)), "m", GptqZeros::as_they_are).value();
  const auto* a = less.zeros.data_as<uint8_t>();
  const auto* b = as_is.zeros.data_as<uint8_t>();
  for (int64_t i = 0; i < less.zeros.numel(); ++i) EXPECT_EQ(a[i], b[i] + 1);
}

struct Liar {
  const char* name;
  std::function<void(Entries&)> change;
  std::string message;
};

void expect_refused(const Entries& honest, const std::vector<Liar>& liars,
                    const std::function<Result<Int4Weight>(const SafetensorsFile&)>& read) {
  const TempFolder folder;
  ASSERT_TRUE(read(opened(folder, honest)).ok());
  for (const Liar& liar : liars) {
    Entries entries = honest;
    liar.change(entries);
    const auto got = read(opened(folder, entries));
    ASSERT_FALSE(got.ok()) << liar.name;
    EXPECT_EQ(got.failure().message, folder / "a.safetensors" + ": " + liar.message) << liar.name;
  }
}

std::string zeros_of(size_t bytes) { return std::string(bytes, '\0'); }

TEST(PackedInt4, LyingGptqHeadersGiveOneClearError) {
  const Plain w(16, 64, 32, 1, 16);
  const std::vector<Liar> liars = {
      {"no scales", [](Entries& e) { e.erase("m.scales"); },
       "TensorNotFound: expected the name of one of 3 tensors, got 'm.scales'"},
      {"no qweight", [](Entries& e) { e.erase("m.qweight"); },
       "TensorNotFound: expected the name of one of 3 tensors, got 'm.qweight'"},
      {"floats",
       [](Entries& e) {
         e["m.qweight"] = {"F32", {8, 16}, zeros_of(512)};
       },
       "InvalidTensor: tensor 'm.qweight': expected a matrix of I32, got F32 [8, 16]"},
      {"three dimensions",
       [](Entries& e) {
         e["m.qweight"] = {"I32", {2, 4, 16}, zeros_of(512)};
       },
       "InvalidTensor: tensor 'm.qweight': expected a matrix of I32, got I32 [2, 4, 16]"},
      {"nothing",
       [](Entries& e) {
         e["m.qweight"] = {"I32", {0, 16}, ""};
       },
       "InvalidTensor: tensor 'm.qweight': expected a matrix of I32, got I32 [0, 16]"},
      {"scales of another width",
       [](Entries& e) {
         e["m.scales"] = {"F16", {2, 8}, zeros_of(32)};
       },
       "InvalidTensor: tensor 'm.scales': expected F16 or BF16 [groups, 16], got f16[2, 8]"},
      {"scales of f32",
       [](Entries& e) {
         e["m.scales"] = {"F32", {2, 16}, zeros_of(128)};
       },
       "InvalidTensor: tensor 'm.scales': expected F16 or BF16 [groups, 16], got f32[2, 16]"},
      {"no group",
       [](Entries& e) {
         e["m.scales"] = {"F16", {0, 16}, ""};
       },
       "InvalidTensor: tensor 'm.scales': expected F16 or BF16 [groups, 16], got f16[0, 16]"},
      {"uneven groups",
       [](Entries& e) {
         e["m.scales"] = {"F16", {3, 16}, zeros_of(96)};
       },
       "InvalidTensor: tensor 'm.scales': expected groups of a multiple of 32 of 64 inputs, got 3 "
       "groups"},
      {"groups of 16",
       [](Entries& e) {
         e["m.scales"] = {"F16", {4, 16}, zeros_of(128)};
       },
       "InvalidTensor: tensor 'm.scales': expected groups of a multiple of 32 of 64 inputs, got 4 "
       "groups"},
      {"short zeros",
       [](Entries& e) {
         e["m.qzeros"] = {"I32", {1, 2}, zeros_of(8)};
       },
       "InvalidTensor: tensor 'm.qzeros': expected I32 [2, 2], got I32 [1, 2]"},
      {"short g_idx",
       [](Entries& e) {
         e["m.g_idx"] = {"I32", {32}, zeros_of(128)};
       },
       "InvalidTensor: tensor 'm.g_idx': expected I32 [64], got I32 [32]"},
      {"a group that there is not",
       [](Entries& e) { e["m.g_idx"].data.replace(0, 4, std::string("\x02\0\0\0", 4)); },
       "InvalidTensor: tensor 'm.g_idx': expected groups below 2, got 2 at 0"},
      {"a negative group", [](Entries& e) { e["m.g_idx"].data.replace(4, 4, "\xff\xff\xff\xff"); },
       "InvalidTensor: tensor 'm.g_idx': expected groups below 2, got -1 at 1"},
      {"one group of all", [](Entries& e) { e["m.g_idx"].data = zeros_of(256); },
       "InvalidTensor: tensor 'm.g_idx': expected groups of 32 inputs, got 64 in group 0"},
  };
  expect_refused(gptq_entries(w, 1), liars,
                 [](const SafetensorsFile& file) { return read_gptq(file, "m"); });
}

TEST(PackedInt4, LyingAwqHeadersGiveOneClearError) {
  const Plain w(16, 64, 32, 0, 15);
  const std::vector<Liar> liars = {
      {"GPTQ's shape",
       [](Entries& e) {
         e["m.qweight"] = {"I32", {8, 16}, zeros_of(512)};
       },
       "InvalidTensor: tensor 'm.scales': expected F16 or BF16 [groups, 128], got f16[2, 16]"},
      {"bytes",
       [](Entries& e) {
         e["m.qzeros"] = {"U8", {2, 2}, zeros_of(4)};
       },
       "InvalidTensor: tensor 'm.qzeros': expected I32 [2, 2], got U8 [2, 2]"},
  };
  expect_refused(awq_entries(w), liars,
                 [](const SafetensorsFile& file) { return read_awq(file, "m"); });
}

RoundedWeight int4_weight(bool has_zeros) {
  Int4Weight w{3, 37, 32, empty({3, 19}, DType::u8), full({3, 2}, 0.5, DType::bf16), {}, {}};
  for (int64_t i = 0; i < w.steps.numel(); ++i)
    w.steps.data_as<uint8_t>()[i] = static_cast<uint8_t>(37 * i);
  if (!has_zeros) return w;
  w.zeros = empty({3, 2}, DType::u8);
  for (int64_t i = 0; i < 6; ++i) w.zeros.data_as<uint8_t>()[i] = static_cast<uint8_t>(2 * i + 6);
  return w;
}

Int8Weight int8_weight() {
  Int8Weight w{2, 5, empty({2, 5}, DType::u8), full({2}, 0.25)};
  for (int64_t i = 0; i < 10; ++i)
    w.steps.data_as<uint8_t>()[i] = static_cast<uint8_t>(25 * i - 125);
  return w;
}

std::vector<double> values_of(const RoundedWeight& w) {
  return std::visit([](const auto& some) { return some.dequantised().to_vector(); }, w);
}

TEST(RoundedFile, GivesBackWhatWasSaved) {
  const TempFolder folder;
  const std::string path = folder / "rounded.safetensors";
  const NamedRounded weights = {
      {"a", int4_weight(false)}, {"b.weight", int4_weight(true)}, {"c", int8_weight()}};
  ASSERT_TRUE(save_rounded(path, weights, {{"norm", full({5}, 2)}}, {{"by", "a test"}}));
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  EXPECT_EQ(file.metadata().at("by"), "a test");
  EXPECT_EQ(file.metadata().at("rounded.c"), "int8 2 5");
  EXPECT_EQ(file.metadata().at("rounded.a"), "int4 3 37 32");
  EXPECT_EQ(file.tensor("norm").value().to_vector(), std::vector<double>(5, 2));
  EXPECT_EQ(rounded_names(file), (std::vector<std::string>{"a", "b.weight", "c"}));
  for (const auto& [name, weight] : weights)
    EXPECT_EQ(values_of(read_rounded(file, name).value()), values_of(weight)) << name;
  EXPECT_EQ(values_of(weights[2].second)[0], -125 * 0.25);
  const Result<RoundedWeight> none = read_rounded(file, "norm");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.failure().message,
            path + ": TensorNotFound: expected a rounded weight 'norm', got none of that name");
}

TEST(RoundedFile, FilesThatLieAreNamed) {
  const TempFolder folder;
  const auto error = [&](const std::string& text, const NamedTensors& tensors) {
    const std::string path = folder / "lies.safetensors";
    EXPECT_TRUE(save_safetensors(path, tensors, {{"rounded.w", text}}));
    const auto got = read_rounded(SafetensorsFile::open(path).value(), "w");
    return got ? std::string("none") : got.failure().message.substr(path.size() + 2);
  };
  const Tensor steps = empty({2, 16}, DType::u8);
  const Tensor scales = full({2, 1}, 1, DType::f16);
  EXPECT_EQ(error("int4 2 32 32", {{"w.steps", steps}, {"w.scales", scales}}), "none");
  for (const char* text :
       {"", "int4", "int4 2 32", "int4 2 32 31", "int4 2 32 0", "int4 -2 32 32", "int4 2 32 32 1",
        "int3 2 32 32", "int8 2", "int8 2 99999999999999999999", "int4 2 32 32x"})
    EXPECT_EQ(
        error(text, {{"w.steps", steps}, {"w.scales", scales}}),
        "InvalidMetadata: 'rounded.w': expected \"int8 n k\" or \"int4 n k group\" with groups "
        "of a multiple of 32, got '" +
            std::string(text) + "'");
  EXPECT_EQ(error("int4 2 64 32", {{"w.steps", steps}, {"w.scales", scales}}),
            "InvalidTensor: tensor 'w.steps': expected u8 [2, 32], got u8[2, 16]");
  EXPECT_EQ(error("int4 2 32 32", {{"w.steps", steps}, {"w.scales", full({2, 1}, 1)}}),
            "InvalidTensor: tensor 'w.scales': expected bf16 or f16 [2, 1], got f32[2, 1]");
  Tensor zeros = empty({2, 1}, DType::u8);
  zeros.data_as<uint8_t>()[0] = 3;
  zeros.data_as<uint8_t>()[1] = 17;
  EXPECT_EQ(error("int4 2 32 32", {{"w.steps", steps}, {"w.scales", scales}, {"w.zeros", zeros}}),
            "InvalidTensor: tensor 'w.zeros': expected zeros from 0 to 16, got a larger one");
}

}  // namespace epilogue::packed_int4_test
