// SPDX-License-Identifier: Apache-2.0
// The writer: its bytes against a file written by hand, and round trips.
#include "epilogue/io.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::safetensors_writer_test {

using namespace io_test;

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data()), tensor.bytes()};
}

void expect_save_failure(const NamedTensors& tensors, const Metadata& metadata, FailureCode code,
                         std::string_view detail) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  const Status status = save_safetensors(path, tensors, metadata);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().code, code);
  EXPECT_EQ(status.failure().message,
            path + ": " + std::string(failure_code_name(code)) + ": " + std::string(detail));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a refused save leaves nothing behind";
}

// Written by hand from the format's rules: metadata first, then I64, F32 (by name), BF16, U8, BOOL;
// the header ends with spaces to a multiple of eight.
TEST(SafetensorsWriter, GoldenFile) {
  const TempFolder folder;
  const NamedTensors tensors = {
      {"z.bool", from_values({1, 0, 1}, {3}, DType::boolean)},
      {"b", from_values({1, -2}, {1, 2}, DType::f32)},
      {"half", from_values({1.5}, {1}, DType::bf16)},
      {"a", from_values({0.5}, {}, DType::f32)},
      {"u", from_values({255}, {1}, DType::u8)},
      {"steps", from_values({-1}, {1}, DType::i64)},
  };
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", tensors,
                               {{"format", "pt"}, {"a \"b\"", "line\nbreak"}})
                  .ok());
  std::string json = R"({"__metadata__":{"a \"b\"":"line\nbreak","format":"pt"},)"
                     R"("steps":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                     R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
                     R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[12,20]},)"
                     R"("half":{"dtype":"BF16","shape":[1],"data_offsets":[20,22]},)"
                     R"("u":{"dtype":"U8","shape":[1],"data_offsets":[22,23]},)"
                     R"("z.bool":{"dtype":"BOOL","shape":[3],"data_offsets":[23,26]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::string_view data(
      "\xff\xff\xff\xff\xff\xff\xff\xff"  // -1
      "\x00\x00\x00\x3f"                  // 0.5
      "\x00\x00\x80\x3f\x00\x00\x00\xc0"  // 1, -2
      "\xc0\x3f"                          // 1.5
      "\xff"
      "\x01\x00\x01",
      26);
  EXPECT_EQ(read_bytes(folder / "a.safetensors"), safetensors_bytes(json, data));
}

TEST(SafetensorsWriter, GoldenEmptyFile) {
  const TempFolder folder;
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", {}).ok());
  EXPECT_EQ(read_bytes(folder / "a.safetensors"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(SafetensorsWriter, RoundTripOfEveryDtype) {
  const TempFolder folder;
  manual_seed(7);
  NamedTensors tensors;
  for (const DType dtype : kDTypes) {
    const std::string name(dtype_name(dtype));
    const Tensor random = randint(0, 2, {3, 5});
    tensors.emplace_back(name + ".matrix", from_values(random.to_vector(), {3, 5}, dtype));
    tensors.emplace_back(name + ".scalar", from_values({1}, {}, dtype));
    tensors.emplace_back(name + ".empty", empty({2, 0, 3}, dtype));
    tensors.emplace_back(name + ".one", from_values({1}, {1, 1, 1, 1, 1, 1, 1, 1}, dtype));
  }
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", tensors).ok());
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  EXPECT_EQ(file.names().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor back = file.tensor(name).value();
    EXPECT_EQ(back.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(back.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(bytes_of(back), bytes_of(tensor)) << name;
  }
}

TEST(SafetensorsWriter, EveryTensorOfAWrittenFileIsAligned) {
  const TempFolder folder;
  NamedTensors tensors;
  for (const DType dtype : kDTypes) tensors.emplace_back(dtype_name(dtype), zeros({3}, dtype));
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", tensors).ok());
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  for (const auto& [name, tensor] : tensors) {
    const Tensor one = file.tensor(name).value();
    const Tensor two = file.tensor(name).value();
    EXPECT_EQ(one.data(), two.data()) << name << " was copied";
  }
}

TEST(SafetensorsWriter, SpecialFloatsAreKeptToTheBit) {
  const TempFolder folder;
  Tensor tensor = empty({5});
  auto* values = tensor.data_as<float>();
  values[0] = -0.0F;
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = std::numeric_limits<float>::denorm_min();
  values[3] = std::numeric_limits<float>::quiet_NaN();
  const uint32_t payload_nan = 0xffc12345;
  std::memcpy(values + 4, &payload_nan, 4);
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", {{"a", tensor}}).ok());
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  EXPECT_EQ(bytes_of(file.tensor("a").value()), bytes_of(tensor));
}

TEST(SafetensorsWriter, OddNamesAndMetadata) {
  const TempFolder folder;
  const std::vector<std::string> names = {"",
                                          " ",
                                          "a\"b\\c/d",
                                          "tab\tline\n",
                                          "\x7f",
                                          "\x1",
                                          "\u00e4\u20ac\U0001f600",
                                          "__metadata",
                                          std::string("nul\0l", 5)};
  NamedTensors tensors;
  Metadata metadata;
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.emplace_back(names[i], from_values({static_cast<double>(i)}, {1}));
    metadata[names[i]] = names[names.size() - 1 - i];
  }
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", tensors, metadata).ok());
  const auto file = SafetensorsFile::open(folder / "a.safetensors");
  ASSERT_TRUE(file.ok()) << file.failure().message;
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(file.value().tensor(names[i]).value().item(), static_cast<double>(i));
  EXPECT_EQ(file.value().metadata(), metadata);
}

TEST(SafetensorsWriter, StridedTensorsAreWrittenRowMajor) {
  const TempFolder folder;
  float values[24];
  for (int i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const NamedTensors tensors = {
      {"transposed", Tensor::from_blob(values, {3, 2}, DType::f32, {}, {1, 3})},
      {"every_other", Tensor::from_blob(values, {3}, DType::f32, {}, {2})},
      {"columns", Tensor::from_blob(values + 1, {2, 2}, DType::f32, {}, {4, 1})},
      {"expanded", Tensor::from_blob(values + 5, {2, 2}, DType::f32, {}, {0, 0})},
      {"permuted", Tensor::from_blob(values, {2, 3, 4}, DType::f32, {}, {4, 8, 1})},
      {"no_rows", Tensor::from_blob(values, {0, 3}, DType::f32, {}, {1, 7})},
  };
  ASSERT_TRUE(save_safetensors(folder / "a.safetensors", tensors).ok());
  const auto file = SafetensorsFile::open(folder / "a.safetensors").value();
  EXPECT_EQ(file.tensor("transposed").value().to_vector(), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(file.tensor("every_other").value().to_vector(), (std::vector<double>{0, 2, 4}));
  EXPECT_EQ(file.tensor("columns").value().to_vector(), (std::vector<double>{1, 2, 5, 6}));
  EXPECT_EQ(file.tensor("expanded").value().to_vector(), (std::vector<double>{5, 5, 5, 5}));
  for (const auto& [name, tensor] : tensors)
    EXPECT_EQ(file.tensor(name).value().to_vector(), tensor.to_vector()) << name;
}

TEST(SafetensorsWriter, SavingOverAMappedFileIsSafe) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  ASSERT_TRUE(save_safetensors(path, {{"a", from_values({1, 2}, {2})}}).ok());
  const Tensor mapped = SafetensorsFile::open(path).value().tensor("a").value();
  ASSERT_TRUE(save_safetensors(path, {{"b", mapped}, {"c", mapped}}).ok());
  EXPECT_EQ(mapped.to_vector(), (std::vector<double>{1, 2}));
  EXPECT_EQ(SafetensorsFile::open(path).value().tensor("c").value().to_vector(),
            (std::vector<double>{1, 2}));
}

TEST(SafetensorsWriter, DuplicateName) {
  expect_save_failure({{"a", zeros({1})}, {"b", zeros({1})}, {"a", zeros({1}, DType::u8)}}, {},
                      FailureCode::duplicate_key, "expected unique names, got 'a' twice");
}

TEST(SafetensorsWriter, ReservedName) {
  expect_save_failure({{"__metadata__", zeros({1})}}, {}, FailureCode::invalid_name,
                      "expected a tensor name in UTF-8 other than '__metadata__', got "
                      "'__metadata__'");
}

TEST(SafetensorsWriter, NameIsNotUtf8) {
  const TempFolder folder;
  const Status status = save_safetensors(folder / "a.safetensors", {{"\xff", zeros({1})}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().code, FailureCode::invalid_name);
}

TEST(SafetensorsWriter, UndefinedTensor) {
  expect_save_failure({{"a", Tensor()}}, {}, FailureCode::invalid_tensor,
                      "tensor 'a': expected a defined tensor, got undefined");
}

TEST(SafetensorsWriter, MetadataIsNotUtf8) {
  expect_save_failure({}, {{"k", "\xff"}}, FailureCode::invalid_metadata,
                      "metadata 'k': expected UTF-8, got other bytes");
}

TEST(SafetensorsWriter, HeaderOverTheLimit) {
  expect_save_failure({}, {{"k", std::string(100'000'000, 'x')}}, FailureCode::header_too_large,
                      "expected a header of at most 100000000 bytes, got at least 100000001");
}

TEST(SafetensorsWriter, FailedSaveKeepsTheOldFile) {
  const TempFolder folder;
  const std::string path = folder / "a.safetensors";
  write_bytes(path, "old");
  ASSERT_FALSE(save_safetensors(path, {{"a", Tensor()}}).ok());
  EXPECT_EQ(read_bytes(path), "old");
}

TEST(SafetensorsWriter, PathThatCannotBeWritten) {
  const TempFolder folder;
  write_bytes(folder / "file", "x");
  const Status status = save_safetensors(folder / "file/a.safetensors", {{"a", zeros({1})}});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.failure().code, FailureCode::file_error);
}

}  // namespace epilogue::safetensors_writer_test
