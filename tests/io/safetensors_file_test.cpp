// SPDX-License-Identifier: Apache-2.0
// Opening checkpoints: tensors over the mapping, and shards behind an index.
#include "epilogue/io.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::safetensors_file_test {

using namespace io_test;

// 56 bytes of JSON, so the data begin at 64.
constexpr std::string_view kTwoFloats =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )";
constexpr std::string_view kOneTwo("\0\0\x80\x3f\0\0\0\x40", 8);

std::string one_byte_tensor(const std::string& name, char value, const std::string& metadata = "") {
  return safetensors_bytes(
      "{" + metadata + "\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      std::string(1, value));
}

void expect_open_failure(const std::string& path, FailureCode code, std::string_view detail) {
  const auto file = SafetensorsFile::open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.failure().code, code);
  EXPECT_EQ(file.failure().message,
            path + ": " + std::string(failure_code_name(code)) + ": " + std::string(detail));
}

TEST(SafetensorsFile, MissingFile) {
  const auto file = SafetensorsFile::open("/nonexistent/a.safetensors");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.failure().code, FailureCode::file_error);
  EXPECT_EQ(file.failure().message,
            "/nonexistent/a.safetensors: cannot read: No such file or directory");
}

TEST(SafetensorsFile, EmptyFile) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors", "");
  expect_open_failure(folder / "a.safetensors", FailureCode::header_too_small,
                      "expected at least 8 bytes, got 0");
}

TEST(SafetensorsFile, TensorsShareTheMapping) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors", safetensors_bytes(kTwoFloats, kOneTwo));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  const Tensor one = file.tensor("a").value();
  const Tensor two = file.tensor("a").value();
  EXPECT_EQ(one.to_vector(), (std::vector<double>{1, 2}));
  EXPECT_EQ(one.data(), two.data());
}

TEST(SafetensorsFile, TensorsOutliveTheFileObjectAndTheFile) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors", safetensors_bytes(kTwoFloats, kOneTwo));
  std::optional<SafetensorsFile> file = SafetensorsFile::open(folder / "a.safetensors").value();
  const Tensor tensor = file->tensor("a").value();
  file.reset();
  std::filesystem::remove(folder / "a.safetensors");
  EXPECT_EQ(tensor.to_vector(), (std::vector<double>{1, 2}));
}

TEST(SafetensorsFile, MovedFileStillReads) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors", safetensors_bytes(kTwoFloats, kOneTwo));
  auto first = SafetensorsFile::open(folder / "a.safetensors").value();
  const SafetensorsFile second = std::move(first);
  EXPECT_EQ(second.tensor("a").value().to_vector(), (std::vector<double>{1, 2}));
  EXPECT_EQ(second.entry("a")->name, "a");
}

TEST(SafetensorsFile, WritingToATensorLeavesTheFileAlone) {
  const TempFolder folder;
  const std::string bytes = safetensors_bytes(kTwoFloats, kOneTwo);
  write_bytes(folder / "a.safetensors", bytes);
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  file.tensor("a").value().data_as<float>()[0] = 7;
  EXPECT_EQ(file.tensor("a").value().to_vector(), (std::vector<double>{7, 2}));
  EXPECT_EQ(read_bytes(folder / "a.safetensors"), bytes);
}

// Who packed one of them sees that the other was written.
TEST(SafetensorsFile, TensorsOfOneNameCountWritesTogether) {
  const TempFolder folder;
  const std::string path = folder / "shared.safetensors";
  save_safetensors(path, {{"w", ones({4})}, {"v", ones({4})}}).value();
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  const SafetensorsFile copy = file;
  const Tensor a = file.tensor("w").value();
  const Tensor b = copy.tensor("w").value();
  const Tensor other = file.tensor("v").value();
  EXPECT_FALSE(a.is_same(b)) << "gradients are each one's own";
  const uint32_t before = b.version();
  a.data_as<float>()[2] = 7;
  a.increment_version();
  EXPECT_EQ(b.version(), before + 1);
  EXPECT_EQ(b.to_vector(), (std::vector<double>{1, 1, 7, 1}));
  EXPECT_EQ(other.version(), 0U);
}

TEST(SafetensorsFile, MisalignedDataAreCopied) {
  const TempFolder folder;
  // One byte less of padding: the floats begin at an odd address.
  write_bytes(folder / "a.safetensors",
              safetensors_bytes(kTwoFloats.substr(0, kTwoFloats.size() - 1), kOneTwo));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  const Tensor tensor = file.tensor("a").value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % sizeof(float), 0U);
  EXPECT_EQ(tensor.to_vector(), (std::vector<double>{1, 2}));
}

TEST(SafetensorsFile, OddBoolsBecomeTrue) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors",
              safetensors_bytes(R"({"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})",
                                std::string_view("\x00\x01\x02\xff", 4)));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  const Tensor tensor = file.tensor("a").value();
  ASSERT_EQ(tensor.dtype(), DType::boolean);
  const auto* bytes = static_cast<const uint8_t*>(tensor.data());
  EXPECT_EQ(std::vector<uint8_t>(bytes, bytes + 4), (std::vector<uint8_t>{0, 1, 1, 1}));
}

TEST(SafetensorsFile, UnknownName) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors", safetensors_bytes(kTwoFloats, kOneTwo));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  EXPECT_FALSE(file.contains("b\n"));
  EXPECT_EQ(file.entry("b\n"), nullptr);
  const auto tensor = file.tensor("b\n");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.failure().code, FailureCode::tensor_not_found);
  EXPECT_EQ(tensor.failure().message,
            (folder / "a.safetensors") +
                ": TensorNotFound: expected the name of one of 1 tensors, got 'b\\x0a'");
}

TEST(SafetensorsFile, UnsupportedDtypeFailsOnlyWhenAskedFor) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors",
              safetensors_bytes(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},)"
                                R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                "xy"));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  EXPECT_EQ(file.tensor("b").value().item(), 'y');
  const auto tensor = file.tensor("a");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.failure().code, FailureCode::unsupported_dtype);
  EXPECT_EQ(tensor.failure().message,
            (folder / "a.safetensors") +
                ": UnsupportedDtype: tensor 'a': expected F32, BF16, F16, "
                "F64, I64, U8 or BOOL, got F8_E4M3");
}

TEST(SafetensorsFile, UnsupportedRankFailsOnlyWhenAskedFor) {
  const TempFolder folder;
  write_bytes(folder / "a.safetensors",
              safetensors_bytes(
                  R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "x"));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  const auto tensor = file.tensor("a");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.failure().code, FailureCode::unsupported_rank);
}

TEST(SafetensorsFile, EmptyTensorWithHugeDimension) {
  const TempFolder folder;
  write_bytes(
      folder / "a.safetensors",
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[0,4611686018427],"data_offsets":[0,0]}})"));
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  const Tensor tensor = file.tensor("a").value();
  EXPECT_EQ(tensor.numel(), 0);
  EXPECT_EQ(tensor.sizes(), (Dims{0, 4611686018427}));
}

class SafetensorsIndex : public testing::Test {
 protected:
  SafetensorsIndex() {
    write_bytes(folder_ / "one.safetensors",
                one_byte_tensor("a", 1, R"("__metadata__":{"f":"1"},)"));
    write_bytes(folder_ / "two.safetensors",
                one_byte_tensor("b", 2, R"("__metadata__":{"f":"2","g":"2"},)"));
  }
  std::string index(std::string_view json) {
    write_bytes(path_, json);
    return path_;
  }
  TempFolder folder_;
  std::string path_ = folder_ / "model.safetensors.index.json";
};

TEST_F(SafetensorsIndex, ReadsAllShards) {
  const auto file = SafetensorsFile::open(index(
      R"({"metadata":{"total_size":2},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})"));
  ASSERT_TRUE(file.ok()) << file.failure().message;
  EXPECT_EQ(file.value().names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file.value().tensor("a").value().item(), 1);
  EXPECT_EQ(file.value().tensor("b").value().item(), 2);
  EXPECT_EQ(file.value().metadata(), (Metadata{{"f", "1"}, {"g", "2"}}));
}

TEST_F(SafetensorsIndex, TheMapDecidesWhichShardATensorComesFrom) {
  write_bytes(folder_ / "two.safetensors", one_byte_tensor("a", 9));
  const auto file =
      SafetensorsFile::open(index(R"({"weight_map":{"a":"two.safetensors"}})")).value();
  EXPECT_EQ(file.tensor("a").value().item(), 9);
  EXPECT_EQ(file.names().size(), 1U);
}

TEST_F(SafetensorsIndex, MissingShard) {
  expect_open_failure(
      index(R"({"weight_map":{"a":"three.safetensors"}})"), FailureCode::missing_shard,
      "expected the shard 'three.safetensors' beside the index, got " +
          (folder_ / "three.safetensors") + ": cannot read: No such file or directory");
}

TEST_F(SafetensorsIndex, BrokenShardNamesTheShard) {
  write_bytes(folder_ / "two.safetensors", "x");
  const auto file = SafetensorsFile::open(index(R"({"weight_map":{"b":"two.safetensors"}})"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.failure().message,
            (folder_ / "two.safetensors") + ": HeaderTooSmall: expected at least 8 bytes, got 1");
}

TEST_F(SafetensorsIndex, MissingTensor) {
  expect_open_failure(index(R"({"weight_map":{"b":"one.safetensors"}})"),
                      FailureCode::missing_tensor,
                      "expected the tensor 'b' in the shard 'one.safetensors', got a shard without "
                      "it");
}

TEST_F(SafetensorsIndex, ShardNamesWithAPathAreRefused) {
  for (const std::string name : {"../one.safetensors", "/etc/passwd", "..", ".", "",
                                 "a/b.safetensors", "a\\\\b.safetensors", "a\\u0000b"}) {
    const auto file = SafetensorsFile::open(index(R"({"weight_map":{"a":")" + name + "\"}}"));
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_EQ(file.failure().code, FailureCode::invalid_shard_name) << name;
  }
  expect_open_failure(index(R"({"weight_map":{"a":"../x"}})"), FailureCode::invalid_shard_name,
                      "weight_map of 'a': expected a plain file name, got '../x'");
}

TEST_F(SafetensorsIndex, DuplicateTensor) {
  expect_open_failure(index(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})"),
                      FailureCode::duplicate_key,
                      "weight_map: expected unique keys, got 'a' twice");
}

TEST_F(SafetensorsIndex, DuplicateMap) {
  expect_open_failure(index(R"({"weight_map":{},"weight_map":{}})"), FailureCode::duplicate_key,
                      "index: expected unique keys, got 'weight_map' twice");
}

TEST_F(SafetensorsIndex, WithoutAMap) {
  expect_open_failure(index(R"({"metadata":{}})"), FailureCode::invalid_index,
                      "expected the key 'weight_map', got none");
}

TEST_F(SafetensorsIndex, NotJson) {
  expect_open_failure(index("weights"), FailureCode::invalid_index,
                      "expected valid JSON, got an error at byte 1 near 'w'");
}

TEST_F(SafetensorsIndex, EmptyIndexFile) {
  const auto file = SafetensorsFile::open(index(""));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.failure().code, FailureCode::invalid_index);
}

TEST_F(SafetensorsIndex, NotAnObject) {
  expect_open_failure(index("[]"), FailureCode::invalid_index,
                      "index: expected an object, got an array");
}

TEST_F(SafetensorsIndex, FileNameIsNotAString) {
  expect_open_failure(index(R"({"weight_map":{"a":1}})"), FailureCode::invalid_index,
                      "weight_map of 'a': expected a file name, got the number 1");
}

TEST_F(SafetensorsIndex, DeepNestingIsRefused) {
  expect_open_failure(index("{\"metadata\":" + std::string(1'000'000, '[')),
                      FailureCode::invalid_index,
                      "expected at most 128 levels of nesting, got more");
}

}  // namespace epilogue::safetensors_file_test
