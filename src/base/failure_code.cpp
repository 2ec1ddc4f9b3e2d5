// SPDX-License-Identifier: Apache-2.0
#include "epilogue/base/failure_code.h"

#include <cstddef>
#include <iterator>

namespace epilogue {
namespace {

struct Row {
  FailureCode code;
  std::string_view name;
};

constexpr Row kRows[] = {
    {FailureCode::file_error, "FileError"},
    {FailureCode::cannot_open, "CannotOpen"},
    {FailureCode::not_json, "NotJson"},
    {FailureCode::not_a_trace, "NotATrace"},
    {FailureCode::empty, "Empty"},
    {FailureCode::no_such_step, "NoSuchStep"},
    {FailureCode::empty_range, "EmptyRange"},
    {FailureCode::invalid_expectation, "InvalidExpectation"},
    {FailureCode::header_too_small, "HeaderTooSmall"},
    {FailureCode::header_too_large, "HeaderTooLarge"},
    {FailureCode::invalid_header, "InvalidHeader"},
    {FailureCode::invalid_header_length, "InvalidHeaderLength"},
    {FailureCode::invalid_header_start, "InvalidHeaderStart"},
    {FailureCode::invalid_header_deserialization, "InvalidHeaderDeserialization"},
    {FailureCode::metadata_incomplete_buffer, "MetadataIncompleteBuffer"},
    {FailureCode::misaligned_slice, "MisalignedSlice"},
    {FailureCode::tensor_invalid_info, "TensorInvalidInfo"},
    {FailureCode::tensor_not_found, "TensorNotFound"},
    {FailureCode::validation_overflow, "ValidationOverflow"},
    {FailureCode::invalid_offset, "InvalidOffset"},
    {FailureCode::duplicate_key, "DuplicateKey"},
    {FailureCode::invalid_name, "InvalidName"},
    {FailureCode::invalid_tensor, "InvalidTensor"},
    {FailureCode::invalid_metadata, "InvalidMetadata"},
    {FailureCode::invalid_index, "InvalidIndex"},
    {FailureCode::invalid_shard_name, "InvalidShardName"},
    {FailureCode::missing_shard, "MissingShard"},
    {FailureCode::missing_tensor, "MissingTensor"},
    {FailureCode::unsupported_dtype, "UnsupportedDtype"},
    {FailureCode::unsupported_rank, "UnsupportedRank"},
    {FailureCode::hf_mlp_not_found, "HfMlpNotFound"},
    {FailureCode::hf_mlp_incomplete, "HfMlpIncomplete"},
    {FailureCode::hf_mlp_mismatch, "HfMlpMismatch"},
    {FailureCode::hf_mlp_shape, "HfMlpShape"},
    {FailureCode::hf_mlp_dtype, "HfMlpDtype"},
    {FailureCode::idx_header_too_small, "IdxHeaderTooSmall"},
    {FailureCode::idx_invalid_magic, "IdxInvalidMagic"},
    {FailureCode::idx_unsupported_type, "IdxUnsupportedType"},
    {FailureCode::idx_unsupported_rank, "IdxUnsupportedRank"},
    {FailureCode::idx_truncated, "IdxTruncated"},
    {FailureCode::idx_trailing_bytes, "IdxTrailingBytes"},
    {FailureCode::idx_too_large, "IdxTooLarge"},
    {FailureCode::idx_corrupt, "IdxCorrupt"},
    {FailureCode::dataset_missing, "DatasetMissing"},
    {FailureCode::dataset_mismatch, "DatasetMismatch"},
    {FailureCode::csv_empty, "CsvEmpty"},
    {FailureCode::csv_header, "CsvHeader"},
    {FailureCode::csv_width, "CsvWidth"},
    {FailureCode::csv_number, "CsvNumber"},
    {FailureCode::csv_date, "CsvDate"},
    {FailureCode::csv_quote, "CsvQuote"},
    {FailureCode::csv_binary, "CsvBinary"},
    {FailureCode::table_column, "TableColumn"},
    {FailureCode::table_rows, "TableRows"},
    {FailureCode::table_target, "TableTarget"},
    {FailureCode::no_checkpoint, "NoCheckpoint"},
    {FailureCode::not_a_checkpoint, "NotACheckpoint"},
    {FailureCode::checkpoint_version, "CheckpointVersion"},
    {FailureCode::checkpoint_corrupt, "CheckpointCorrupt"},
    {FailureCode::not_a_model, "NotAModel"},
    {FailureCode::model_input, "ModelInput"},
    {FailureCode::unknown_isa, "UnknownIsa"},
    {FailureCode::no_machine, "NoMachine"},
    {FailureCode::unknown_cpu, "UnknownCpu"},
    {FailureCode::peer_start, "PeerStart"},
    {FailureCode::peer_timeout, "PeerTimeout"},
    {FailureCode::peer_died, "PeerDied"},
    {FailureCode::peer_error, "PeerError"},
};

constexpr bool codes_follow_the_enumerators() {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].code != static_cast<FailureCode>(i)) return false;
  return true;
}
static_assert(codes_follow_the_enumerators());

}  // namespace

std::string_view failure_code_name(FailureCode code) {
  return kRows[static_cast<size_t>(code)].name;
}

}  // namespace epilogue
