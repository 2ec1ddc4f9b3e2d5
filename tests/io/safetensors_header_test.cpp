// SPDX-License-Identifier: Apache-2.0
// Every rule of the header, each with its code and message.
#include <gtest/gtest.h>

#include <string>

#include "header_failures.h"

namespace epilogue::io_test::safetensors_header_test {
namespace {

std::string bytes_of_length(uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out;
}

TEST(SafetensorsHeader, EmptyFileIsTooSmall) {
  expect_failure("", FailureCode::header_too_small, "expected at least 8 bytes, got 0");
}

TEST(SafetensorsHeader, SevenBytesAreTooSmall) {
  expect_failure("1234567", FailureCode::header_too_small, "expected at least 8 bytes, got 7");
}

TEST(SafetensorsHeader, LengthOverTheLimitIsTooLarge) {
  expect_failure(bytes_of_length(100'000'001) + "{}", FailureCode::header_too_large,
                 "expected a header of at most 100000000 bytes, got a length of 100000001");
}

TEST(SafetensorsHeader, LargestLengthIsTooLarge) {
  expect_failure(bytes_of_length(UINT64_MAX) + "{}", FailureCode::header_too_large,
                 "expected a header of at most 100000000 bytes, got a length of "
                 "18446744073709551615");
}

TEST(SafetensorsHeader, LengthAtTheLimitButBeyondTheFile) {
  expect_failure(bytes_of_length(100'000'000) + "{}", FailureCode::invalid_header_length,
                 "expected a header of at most 2 bytes (the rest of the file), got a length of "
                 "100000000");
}

TEST(SafetensorsHeader, LengthOneBeyondTheFile) {
  expect_failure(bytes_of_length(3) + "{}", FailureCode::invalid_header_length,
                 "expected a header of at most 2 bytes (the rest of the file), got a length of 3");
}

TEST(SafetensorsHeader, BadUtf8) {
  expect_json_failure("{\"\xff\":1}", FailureCode::invalid_header,
                      "expected a header in UTF-8, got other bytes");
}

TEST(SafetensorsHeader, OverlongUtf8) {
  expect_json_failure("{\"\xc0\xaf\":1}", FailureCode::invalid_header,
                      "expected a header in UTF-8, got other bytes");
}

TEST(SafetensorsHeader, SurrogateInUtf8) {
  expect_json_failure("{\"\xed\xa0\x80\":1}", FailureCode::invalid_header,
                      "expected a header in UTF-8, got other bytes");
}

TEST(SafetensorsHeader, EmptyHeaderHasNoStart) {
  expect_json_failure("", FailureCode::invalid_header_start,
                      "expected a header that starts with '{', got an empty one");
}

TEST(SafetensorsHeader, LeadingSpace) {
  expect_json_failure(" {}", FailureCode::invalid_header_start,
                      "expected a header that starts with '{', got ' {}'");
}

TEST(SafetensorsHeader, ByteOrderMark) {
  expect_json_failure("\xef\xbb\xbf{}", FailureCode::invalid_header_start,
                      "expected a header that starts with '{', got '\xef\xbb\xbf{}'");
}

TEST(SafetensorsHeader, ArrayAtTheTop) {
  expect_json_failure("[]", FailureCode::invalid_header_start,
                      "expected a header that starts with '{', got '[]'");
}

TEST(SafetensorsHeader, UnclosedObject) {
  const auto header = parse(safetensors_bytes("{"));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.failure().code, kJson);
  EXPECT_NE(header.failure().message.find("expected valid JSON, got an error at byte"),
            std::string::npos)
      << header.failure().message;
}

TEST(SafetensorsHeader, TextAfterTheObject) {
  expect_json_failure("{}x", kJson, "expected valid JSON, got an error at byte 3 near '{}x'");
}

TEST(SafetensorsHeader, SecondObject) {
  expect_json_failure("{}{}", kJson, "expected valid JSON, got an error at byte 3 near '{}{'");
}

TEST(SafetensorsHeader, NulAfterTheObjectDoesNotHideTheRest) {
  expect_json_failure(std::string_view("{}\0garbage", 10), kJson,
                      "expected valid JSON, got a NUL at byte 2");
}

TEST(SafetensorsHeader, CommentIsNotJson) {
  expect_json_failure("{/**/}", kJson, "expected valid JSON, got an error at byte 2 near '{/'");
}

TEST(SafetensorsHeader, TrailingComma) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},})", kJson,
                      "expected valid JSON, got an error at byte 54 near '0]},}'");
}

TEST(SafetensorsHeader, LoneSurrogateEscape) {
  const auto header = parse(safetensors_bytes(R"({"\ud800":{}})"));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.failure().code, kJson);
}

TEST(SafetensorsHeader, TensorIsNotAnObject) {
  expect_json_failure(R"({"a":[1]})", kJson, "tensor 'a': expected an object, got an array");
}

TEST(SafetensorsHeader, MissingDtype) {
  expect_json_failure(R"({"a":{"shape":[],"data_offsets":[0,0]}})", kJson,
                      "tensor 'a': expected the field 'dtype', got none");
}

TEST(SafetensorsHeader, MissingShape) {
  expect_json_failure(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", kJson,
                      "tensor 'a': expected the field 'shape', got none");
}

TEST(SafetensorsHeader, MissingOffsets) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[]}})", kJson,
                      "tensor 'a': expected the field 'data_offsets', got none");
}

TEST(SafetensorsHeader, UnknownDtype) {
  expect_json_failure(R"({"a":{"dtype":"F31","shape":[],"data_offsets":[0,0]}})", kJson,
                      "dtype of tensor 'a': expected a dtype such as 'F32' or 'BF16', got the "
                      "string 'F31'");
}

TEST(SafetensorsHeader, DtypeNamesAreCaseSensitive) {
  expect_json_failure(R"({"a":{"dtype":"f32","shape":[],"data_offsets":[0,0]}})", kJson,
                      "dtype of tensor 'a': expected a dtype such as 'F32' or 'BF16', got the "
                      "string 'f32'");
}

TEST(SafetensorsHeader, DtypeIsNotAString) {
  expect_json_failure(R"({"a":{"dtype":8,"shape":[],"data_offsets":[0,0]}})", kJson,
                      "dtype of tensor 'a': expected a string, got the number 8");
}

TEST(SafetensorsHeader, ShapeIsNotAnArray) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":null,"data_offsets":[0,0]}})", kJson,
                      "shape of tensor 'a': expected an array, got null");
}

TEST(SafetensorsHeader, NestedShape) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", kJson,
                      "shape of tensor 'a': expected non-negative integers, got an array");
}

TEST(SafetensorsHeader, NegativeDimension) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", kJson,
                      "shape of tensor 'a': expected non-negative integers, got a negative number");
}

TEST(SafetensorsHeader, MinusZeroDimension) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}})", kJson,
                      "shape of tensor 'a': expected non-negative integers, got a negative number");
}

TEST(SafetensorsHeader, FractionalDimension) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", kJson,
                      "shape of tensor 'a': expected non-negative integers, got a fraction, an "
                      "exponent or an integer beyond 64 bits");
}

TEST(SafetensorsHeader, DimensionWithExponent) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}})", kJson,
                      "shape of tensor 'a': expected non-negative integers, got a fraction, an "
                      "exponent or an integer beyond 64 bits");
}

TEST(SafetensorsHeader, DimensionBeyond64Bits) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})",
                      kJson,
                      "shape of tensor 'a': expected non-negative integers, got a fraction, an "
                      "exponent or an integer beyond 64 bits");
}

TEST(SafetensorsHeader, DimensionAsText) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", kJson,
                      "shape of tensor 'a': expected non-negative integers, got the string '1'");
}

TEST(SafetensorsHeader, OneOffset) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0]}})", kJson,
                      "data_offsets of tensor 'a': expected two non-negative integers, got the "
                      "array's end");
}

TEST(SafetensorsHeader, ThreeOffsets) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1,2]}})", kJson,
                      "data_offsets of tensor 'a': expected two non-negative integers, got the "
                      "number 2");
}

TEST(SafetensorsHeader, NegativeOffset) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[-1,0]}})", kJson,
                      "data_offsets of tensor 'a': expected two non-negative integers, got a "
                      "negative number");
}

TEST(SafetensorsHeader, MetadataIsNotAnObject) {
  expect_json_failure(R"({"__metadata__":"pt"})", kJson,
                      "__metadata__: expected an object, got the string 'pt'");
}

TEST(SafetensorsHeader, MetadataValueIsNotAString) {
  expect_json_failure(R"({"__metadata__":{"epoch":3}})", kJson,
                      "__metadata__ 'epoch': expected a string, got the number 3");
}

TEST(SafetensorsHeader, NestedMetadata) {
  expect_json_failure(R"({"__metadata__":{"a":{"b":"c"}}})", kJson,
                      "__metadata__ 'a': expected a string, got an object");
}

TEST(SafetensorsHeader, DuplicateTensor) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                   "ab"),
                 FailureCode::duplicate_key, "header: expected unique keys, got 'a' twice");
}

TEST(SafetensorsHeader, DuplicateTensorByEscape) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                   "ab"),
                 FailureCode::duplicate_key, "header: expected unique keys, got 'a' twice");
}

TEST(SafetensorsHeader, DuplicateField) {
  expect_json_failure(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                      FailureCode::duplicate_key,
                      "tensor 'a': expected unique keys, got 'dtype' twice");
}

TEST(SafetensorsHeader, DuplicateMetadataKey) {
  expect_json_failure(R"({"__metadata__":{"k":"1","k":"2"}})", FailureCode::duplicate_key,
                      "__metadata__: expected unique keys, got 'k' twice");
}

TEST(SafetensorsHeader, DuplicateMetadata) {
  expect_json_failure(R"({"__metadata__":{},"__metadata__":{}})", FailureCode::duplicate_key,
                      "header: expected unique keys, got '__metadata__' twice");
}

TEST(SafetensorsHeader, ChecksRunInTheReferencesOrder) {
  // Both files break several rules; the first check that looks at them decides.
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[1,9]}})", "z"),
                 FailureCode::invalid_offset,
                 "tensor 'a': expected data that begin at 0, where the tensor before it ends, got "
                 "the offsets [1, 9]");
  expect_failure(safetensors_bytes("\xff"), FailureCode::invalid_header,
                 "expected a header in UTF-8, got other bytes");
}

TEST(SafetensorsHeader, DeepNestingInAnUnknownFieldIsRefused) {
  const std::string deep(1'000'000, '[');
  expect_json_failure(R"({"a":{"x":)" + deep, kJson,
                      "expected at most 128 levels of nesting, got more");
}

TEST(SafetensorsHeader, DeepNestingOfObjectsIsRefused) {
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += R"({"a":)";
  expect_json_failure(deep, kJson, "expected at most 128 levels of nesting, got more");
}

TEST(SafetensorsHeader, NamesInMessagesAreEscapedAndCut) {
  const std::string name = "x\\n\\u001b[31m" + std::string(200, 'y');
  const auto header = parse(safetensors_bytes("{\"" + name + "\":1}"));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.failure().message,
            "a.safetensors: InvalidHeaderDeserialization: tensor 'x\\x0a\\x1b[31m" +
                std::string(73, 'y') + "...': expected an object, got the number 1");
}

TEST(SafetensorsHeader, LongTokensInSyntaxErrorsAreCut) {
  const auto header = parse(safetensors_bytes("{\"" + std::string(100'000, 'y')));
  ASSERT_FALSE(header.ok());
  EXPECT_LT(header.failure().message.size(), 250U);
}

TEST(SafetensorsHeader, NoTensors) {
  const auto header = parse(safetensors_bytes("{}"));
  ASSERT_TRUE(header.ok()) << header.failure().message;
  EXPECT_TRUE(header.value().entries.empty());
  EXPECT_EQ(header.value().data_offset, 10U);
}

TEST(SafetensorsHeader, AnyOrderPaddingAndUnknownFieldsAreRead) {
  const auto header = parse(safetensors_bytes(
      R"({"b":{"data_offsets":[2,10],"x":{"y":[1.5,-2,true,null,"z",{}]},"shape":[1,2],"dtype":"F32"},)"
      R"("__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
      "0123456789"));
  ASSERT_TRUE(header.ok()) << header.failure().message;
  const auto& entries = header.value().entries;
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].dtype, SafetensorsDtype::bf16);
  EXPECT_TRUE(entries[0].shape.empty());
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(entries[1].begin, 2U);
  EXPECT_EQ(entries[1].end, 10U);
  EXPECT_EQ(header.value().metadata, (Metadata{{"format", "pt"}}));
}

TEST(SafetensorsHeader, EmptyTensorsMayShareAPlace) {
  const auto header =
      parse(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("e":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]},)"
                              R"("f":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}})",
                              "a"));
  ASSERT_TRUE(header.ok()) << header.failure().message;
  EXPECT_EQ(header.value().entries[0].name, "e");
}

TEST(SafetensorsHeader, EveryDtypeOfTheFormatIsKnown) {
  for (int i = 0; i <= static_cast<int>(SafetensorsDtype::u64); ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    const int bytes = safetensors_dtype_bits(dtype);  // eight elements
    const auto header = parse(safetensors_bytes(
        "{\"a\":{\"dtype\":\"" + std::string(safetensors_dtype_name(dtype)) +
            "\",\"shape\":[8],\"data_offsets\":[0," + std::to_string(bytes) + "]}}",
        std::string(static_cast<size_t>(bytes), 'x')));
    ASSERT_TRUE(header.ok()) << header.failure().message;
    EXPECT_EQ(header.value().entries[0].dtype, dtype);
  }
}

}  // namespace
}  // namespace epilogue::io_test::safetensors_header_test
