// SPDX-License-Identifier: Apache-2.0
// Rules of the header about where data lie: offsets, sizes, holes and overlaps.
#include <gtest/gtest.h>

#include <string>

#include "header_failures.h"

namespace epilogue::io_test::safetensors_layout_test {
namespace {

TEST(SafetensorsLayout, FirstTensorDoesNotBeginAtZero) {
  expect_failure(
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab"),
      FailureCode::invalid_offset,
      "tensor 'a': expected data that begin at 0, where the tensor before it ends, got the offsets "
      "[1, 2]");
}

TEST(SafetensorsLayout, Hole) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                   "abc"),
                 FailureCode::invalid_offset,
                 "tensor 'b': expected data that begin at 1, where the tensor before it ends, got "
                 "the offsets [2, 3]");
}

TEST(SafetensorsLayout, Overlap) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                   R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                   "abc"),
                 FailureCode::invalid_offset,
                 "tensor 'b': expected data that begin at 2, where the tensor before it ends, got "
                 "the offsets [1, 3]");
}

TEST(SafetensorsLayout, SharedBytes) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                   R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                   "ab"),
                 FailureCode::invalid_offset,
                 "tensor 'b': expected data that begin at 2, where the tensor before it ends, got "
                 "the offsets [0, 2]");
}

TEST(SafetensorsLayout, OffsetsBackwards) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                   R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})",
                                   "ab"),
                 FailureCode::invalid_offset,
                 "tensor 'b': expected data that begin at 2, where the tensor before it ends, got "
                 "the offsets [2, 1]");
}

TEST(SafetensorsLayout, DimensionBeyondInt64) {
  expect_json_failure(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})",
                      FailureCode::validation_overflow,
                      "shape of tensor 'a': expected dimensions below 2^63, got "
                      "9223372036854775808");
}

TEST(SafetensorsLayout, ElementCountOverflows) {
  expect_json_failure(
      R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
      FailureCode::validation_overflow,
      "tensor 'a': expected a size below 2^64 bits, got a larger shape");
}

TEST(SafetensorsLayout, BitCountOverflows) {
  expect_json_failure(R"({"a":{"dtype":"F64","shape":[288230376151711744],"data_offsets":[0,0]}})",
                      FailureCode::validation_overflow,
                      "tensor 'a': expected a size below 2^64 bits, got a larger shape");
}

TEST(SafetensorsLayout, AZeroDoesNotHideAnOverflow) {
  expect_json_failure(
      R"({"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})",
      FailureCode::validation_overflow,
      "tensor 'a': expected a size below 2^64 bits, got a larger shape");
}

TEST(SafetensorsLayout, OddNumberOfHalfBytes) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "a"),
                 FailureCode::misaligned_slice, "tensor 'a': expected whole bytes, got 12 bits");
}

TEST(SafetensorsLayout, SizeDoesNotFitTheShape) {
  expect_failure(
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd"),
      FailureCode::tensor_invalid_info,
      "tensor 'a': expected 8 bytes for F32 and its shape, got 4 between its offsets");
}

TEST(SafetensorsLayout, EmptyTensorWithBytes) {
  expect_failure(
      safetensors_bytes(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,4]}})", "abcd"),
      FailureCode::tensor_invalid_info,
      "tensor 'a': expected 0 bytes for F32 and its shape, got 4 between its offsets");
}

TEST(SafetensorsLayout, TrailingBytes) {
  expect_failure(
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "ab"),
      FailureCode::metadata_incomplete_buffer, "expected 1 bytes of data after the header, got 2");
}

TEST(SafetensorsLayout, TruncatedData) {
  expect_failure(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "a"),
                 FailureCode::metadata_incomplete_buffer,
                 "expected 2 bytes of data after the header, got 1");
}

TEST(SafetensorsLayout, DataWithoutTensors) {
  expect_failure(safetensors_bytes("{}", "a"), FailureCode::metadata_incomplete_buffer,
                 "expected 0 bytes of data after the header, got 1");
}

}  // namespace
}  // namespace epilogue::io_test::safetensors_layout_test
