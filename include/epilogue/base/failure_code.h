// SPDX-License-Identifier: Apache-2.0
// Why input from outside could not be used: one list for the whole library.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace epilogue {

// Names are stable, for tests and scripts; values are not.
enum class FailureCode : uint8_t {
  // Files.
  file_error,
  cannot_open,
  // Traces.
  not_json,
  not_a_trace,
  empty,
  no_such_step,
  empty_range,
  invalid_expectation,
  // safetensors: the names are those of Hugging Face's library where it has one.
  header_too_small,
  header_too_large,
  invalid_header,
  invalid_header_length,
  invalid_header_start,
  invalid_header_deserialization,
  metadata_incomplete_buffer,
  misaligned_slice,
  tensor_invalid_info,
  tensor_not_found,
  validation_overflow,
  invalid_offset,
  duplicate_key,
  invalid_name,
  invalid_tensor,
  invalid_metadata,
  invalid_index,
  invalid_shard_name,
  missing_shard,
  missing_tensor,
  unsupported_dtype,
  unsupported_rank,
  // MLPs in checkpoints of Hugging Face models.
  hf_mlp_not_found,
  hf_mlp_incomplete,
  hf_mlp_mismatch,
  hf_mlp_shape,
  hf_mlp_dtype,
  // IDX data sets.
  idx_header_too_small,
  idx_invalid_magic,
  idx_unsupported_type,
  idx_unsupported_rank,
  idx_truncated,
  idx_trailing_bytes,
  idx_too_large,
  idx_corrupt,
  dataset_missing,
  dataset_mismatch,
  // Tables.
  csv_empty,
  csv_header,
  csv_width,
  csv_number,
  csv_date,
  csv_quote,
  csv_binary,
  table_column,
  table_rows,
  table_target,
  // Checkpoints of a training run.
  no_checkpoint,
  not_a_checkpoint,
  checkpoint_version,
  checkpoint_corrupt,
  // Trained models.
  not_a_model,
  model_input,
  // The machine, and processes that a benchmark runs beside this one.
  unknown_isa,
  no_machine,
  unknown_cpu,
  peer_start,
  peer_timeout,
  peer_died,
  peer_error,
};

// "HeaderTooLarge": as messages say it.
std::string_view failure_code_name(FailureCode code);

}  // namespace epilogue

#pragma GCC visibility pop
