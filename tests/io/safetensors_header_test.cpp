// SPDX-License-Identifier: Apache-2.0
// Every rule of the header, each with its code and message.
#include "epilogue/io.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::io_test::safetensors_header_test {

Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "a.safetensors");
}

void expect_failure(std::string_view file, FailureCode code, std::string_view detail) {
  const auto header = parse(file);
  ASSERT_FALSE(header.ok()) << "expected " << failure_code_name(code);
  EXPECT_EQ(header.failure().code, code);
  EXPECT_EQ(header.failure().message,
            "a.safetensors: " + std::string(failure_code_name(code)) + ": " + std::string(detail));
}

constexpr FailureCode kJson = FailureCode::invalid_header_deserialization;

struct HeaderFailure {
  std::string_view name;
  std::string file;
  FailureCode code;
  std::string_view detail;
};

std::string bytes_of_length(uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out;
}

// A file of a tensor 'a'.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::string_view data = {}) {
  return safetensors_bytes(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape +
                               R"(,"data_offsets":)" + offsets + "}}",
                           data);
}

// Every rule of the header, and of where data lie: offsets, sizes, holes and overlaps.
const std::vector<HeaderFailure>& header_failures() {
  using enum FailureCode;
  static const std::vector<HeaderFailure> all = {
      {"EmptyFileIsTooSmall", "", header_too_small, "expected at least 8 bytes, got 0"},
      {"SevenBytesAreTooSmall", "1234567", header_too_small, "expected at least 8 bytes, got 7"},
      {"LengthOverTheLimitIsTooLarge", bytes_of_length(100'000'001) + "{}", header_too_large,
       "expected a header of at most 100000000 bytes, got a length of 100000001"},
      {"LargestLengthIsTooLarge", bytes_of_length(UINT64_MAX) + "{}", header_too_large,
       "expected a header of at most 100000000 bytes, got a length of 18446744073709551615"},
      {"LengthAtTheLimitButBeyondTheFile", bytes_of_length(100'000'000) + "{}",
       invalid_header_length,
       "expected a header of at most 2 bytes (the rest of the file), got a length of 100000000"},
      {"LengthOneBeyondTheFile", bytes_of_length(3) + "{}", invalid_header_length,
       "expected a header of at most 2 bytes (the rest of the file), got a length of 3"},
      {"BadUtf8", safetensors_bytes("{\"\xff\":1}"), invalid_header,
       "expected a header in UTF-8, got other bytes"},
      {"OverlongUtf8", safetensors_bytes("{\"\xc0\xaf\":1}"), invalid_header,
       "expected a header in UTF-8, got other bytes"},
      {"SurrogateInUtf8", safetensors_bytes("{\"\xed\xa0\x80\":1}"), invalid_header,
       "expected a header in UTF-8, got other bytes"},
      {"EmptyHeaderHasNoStart", safetensors_bytes(""), invalid_header_start,
       "expected a header that starts with '{', got an empty one"},
      {"LeadingSpace", safetensors_bytes(" {}"), invalid_header_start,
       "expected a header that starts with '{', got ' {}'"},
      {"ByteOrderMark", safetensors_bytes("\xef\xbb\xbf{}"), invalid_header_start,
       "expected a header that starts with '{', got '\xef\xbb\xbf{}'"},
      {"ArrayAtTheTop", safetensors_bytes("[]"), invalid_header_start,
       "expected a header that starts with '{', got '[]'"},
      {"TextAfterTheObject", safetensors_bytes("{}x"), kJson,
       "expected valid JSON, got an error at byte 3 near '{}x'"},
      {"SecondObject", safetensors_bytes("{}{}"), kJson,
       "expected valid JSON, got an error at byte 3 near '{}{'"},
      {"NulAfterTheObjectDoesNotHideTheRest",
       safetensors_bytes(std::string_view("{}\0garbage", 10)), kJson,
       "expected valid JSON, got a NUL at byte 2"},
      {"CommentIsNotJson", safetensors_bytes("{/**/}"), kJson,
       "expected valid JSON, got an error at byte 2 near '{/'"},
      {"TrailingComma",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},})"), kJson,
       "expected valid JSON, got an error at byte 54 near '0]},}'"},
      {"TensorIsNotAnObject", safetensors_bytes(R"({"a":[1]})"), kJson,
       "tensor 'a': expected an object, got an array"},
      {"MissingDtype", safetensors_bytes(R"({"a":{"shape":[],"data_offsets":[0,0]}})"), kJson,
       "tensor 'a': expected the field 'dtype', got none"},
      {"MissingShape", safetensors_bytes(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})"), kJson,
       "tensor 'a': expected the field 'shape', got none"},
      {"MissingOffsets", safetensors_bytes(R"({"a":{"dtype":"U8","shape":[]}})"), kJson,
       "tensor 'a': expected the field 'data_offsets', got none"},
      {"UnknownDtype", one("F31", "[]", "[0,0]"), kJson,
       "dtype of tensor 'a': expected a dtype such as 'F32' or 'BF16', got the string 'F31'"},
      {"DtypeNamesAreCaseSensitive", one("f32", "[]", "[0,0]"), kJson,
       "dtype of tensor 'a': expected a dtype such as 'F32' or 'BF16', got the string 'f32'"},
      {"DtypeIsNotAString",
       safetensors_bytes(R"({"a":{"dtype":8,"shape":[],"data_offsets":[0,0]}})"), kJson,
       "dtype of tensor 'a': expected a string, got the number 8"},
      {"ShapeIsNotAnArray", one("U8", "null", "[0,0]"), kJson,
       "shape of tensor 'a': expected an array, got null"},
      {"NestedShape", one("U8", "[[1]]", "[0,1]"), kJson,
       "shape of tensor 'a': expected non-negative integers, got an array"},
      {"NegativeDimension", one("U8", "[-1]", "[0,1]"), kJson,
       "shape of tensor 'a': expected non-negative integers, got a negative number"},
      {"MinusZeroDimension", one("U8", "[-0]", "[0,0]"), kJson,
       "shape of tensor 'a': expected non-negative integers, got a negative number"},
      {"FractionalDimension", one("U8", "[1.0]", "[0,1]"), kJson,
       "shape of tensor 'a': expected non-negative integers, got a fraction, an exponent or an "
       "integer beyond 64 bits"},
      {"DimensionWithExponent", one("U8", "[1e0]", "[0,1]"), kJson,
       "shape of tensor 'a': expected non-negative integers, got a fraction, an exponent or an "
       "integer beyond 64 bits"},
      {"DimensionBeyond64Bits", one("U8", "[18446744073709551616]", "[0,1]"), kJson,
       "shape of tensor 'a': expected non-negative integers, got a fraction, an exponent or an "
       "integer beyond 64 bits"},
      {"DimensionAsText",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})"), kJson,
       "shape of tensor 'a': expected non-negative integers, got the string '1'"},
      {"OneOffset", one("U8", "[]", "[0]"), kJson,
       "data_offsets of tensor 'a': expected two non-negative integers, got the array's end"},
      {"ThreeOffsets", one("U8", "[]", "[0,1,2]"), kJson,
       "data_offsets of tensor 'a': expected two non-negative integers, got the number 2"},
      {"NegativeOffset", one("U8", "[]", "[-1,0]"), kJson,
       "data_offsets of tensor 'a': expected two non-negative integers, got a negative number"},
      {"MetadataIsNotAnObject", safetensors_bytes(R"({"__metadata__":"pt"})"), kJson,
       "__metadata__: expected an object, got the string 'pt'"},
      {"MetadataValueIsNotAString", safetensors_bytes(R"({"__metadata__":{"epoch":3}})"), kJson,
       "__metadata__ 'epoch': expected a string, got the number 3"},
      {"NestedMetadata", safetensors_bytes(R"({"__metadata__":{"a":{"b":"c"}}})"), kJson,
       "__metadata__ 'a': expected a string, got an object"},
      {"DuplicateTensor",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         "ab"),
       duplicate_key, "header: expected unique keys, got 'a' twice"},
      {"DuplicateTensorByEscape",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         "ab"),
       duplicate_key, "header: expected unique keys, got 'a' twice"},
      {"DuplicateField",
       safetensors_bytes(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       duplicate_key, "tensor 'a': expected unique keys, got 'dtype' twice"},
      {"DuplicateMetadataKey", safetensors_bytes(R"({"__metadata__":{"k":"1","k":"2"}})"),
       duplicate_key, "__metadata__: expected unique keys, got 'k' twice"},
      {"DuplicateMetadata", safetensors_bytes(R"({"__metadata__":{},"__metadata__":{}})"),
       duplicate_key, "header: expected unique keys, got '__metadata__' twice"},
      {"FirstTensorDoesNotBeginAtZero", one("U8", "[1]", "[1,2]", "ab"), invalid_offset,
       "tensor 'a': expected data that begin at 0, where the tensor before it ends, got the "
       "offsets [1, 2]"},
      {"Hole",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                         "abc"),
       invalid_offset,
       "tensor 'b': expected data that begin at 1, where the tensor before it ends, got the "
       "offsets [2, 3]"},
      {"Overlap",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                         "abc"),
       invalid_offset,
       "tensor 'b': expected data that begin at 2, where the tensor before it ends, got the "
       "offsets [1, 3]"},
      {"SharedBytes",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                         "ab"),
       invalid_offset,
       "tensor 'b': expected data that begin at 2, where the tensor before it ends, got the "
       "offsets [0, 2]"},
      {"OffsetsBackwards",
       safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                         R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})",
                         "ab"),
       invalid_offset,
       "tensor 'b': expected data that begin at 2, where the tensor before it ends, got the "
       "offsets [2, 1]"},
      {"DimensionBeyondInt64", one("U8", "[9223372036854775808]", "[0,1]"), validation_overflow,
       "shape of tensor 'a': expected dimensions below 2^63, got 9223372036854775808"},
      {"ElementCountOverflows", one("U8", "[4294967296,4294967296]", "[0,0]"), validation_overflow,
       "tensor 'a': expected a size below 2^64 bits, got a larger shape"},
      {"BitCountOverflows", one("F64", "[288230376151711744]", "[0,0]"), validation_overflow,
       "tensor 'a': expected a size below 2^64 bits, got a larger shape"},
      {"AZeroDoesNotHideAnOverflow", one("U8", "[0,4294967296,4294967296]", "[0,0]"),
       validation_overflow, "tensor 'a': expected a size below 2^64 bits, got a larger shape"},
      {"OddNumberOfHalfBytes", one("F4", "[3]", "[0,1]", "a"), misaligned_slice,
       "tensor 'a': expected whole bytes, got 12 bits"},
      {"SizeDoesNotFitTheShape", one("F32", "[2]", "[0,4]", "abcd"), tensor_invalid_info,
       "tensor 'a': expected 8 bytes for F32 and its shape, got 4 between its offsets"},
      {"EmptyTensorWithBytes", one("F32", "[0]", "[0,4]", "abcd"), tensor_invalid_info,
       "tensor 'a': expected 0 bytes for F32 and its shape, got 4 between its offsets"},
      {"TrailingBytes", one("U8", "[1]", "[0,1]", "ab"), metadata_incomplete_buffer,
       "expected 1 bytes of data after the header, got 2"},
      {"TruncatedData", one("U8", "[2]", "[0,2]", "a"), metadata_incomplete_buffer,
       "expected 2 bytes of data after the header, got 1"},
      {"DataWithoutTensors", safetensors_bytes("{}", "a"), metadata_incomplete_buffer,
       "expected 0 bytes of data after the header, got 1"},
  };
  return all;
}

class SafetensorsHeaderFailure : public testing::TestWithParam<HeaderFailure> {};

TEST_P(SafetensorsHeaderFailure, HasItsCodeAndMessage) {
  expect_failure(GetParam().file, GetParam().code, GetParam().detail);
}

INSTANTIATE_TEST_SUITE_P(All, SafetensorsHeaderFailure, testing::ValuesIn(header_failures()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(SafetensorsHeader, UnclosedObject) {
  const auto header = parse(safetensors_bytes("{"));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.failure().code, kJson);
  EXPECT_HAS(header.failure().message, "expected valid JSON, got an error at byte");
}

TEST(SafetensorsHeader, LoneSurrogateEscape) {
  const auto header = parse(safetensors_bytes(R"({"\ud800":{}})"));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.failure().code, kJson);
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
  expect_failure(safetensors_bytes(R"({"a":{"x":)" + deep), kJson,
                 "expected at most 128 levels of nesting, got more");
}

TEST(SafetensorsHeader, DeepNestingOfObjectsIsRefused) {
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += R"({"a":)";
  expect_failure(safetensors_bytes(deep), kJson,
                 "expected at most 128 levels of nesting, got more");
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

}  // namespace epilogue::io_test::safetensors_header_test
