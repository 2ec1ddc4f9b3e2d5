// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/file.h"
#include "base/json.h"
#include "core/host_elements.h"
#include "epilogue/io.h"
#include "io/message.h"
#include "io/safetensors_dtype.h"
#include "io/safetensors_json.h"

namespace epilogue {
namespace {

using io::in_quotes;
using io::io_failure;

using Row = const std::pair<std::string, Tensor>*;

Status check_tensors(const std::string& path, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (name == io::kMetadataKey || !simdjson::validate_utf8(name))
      return io_failure(path, FailureCode::invalid_name,
                        fmt::format("expected a tensor name in UTF-8 other than '{}', got {}",
                                    io::kMetadataKey, in_quotes(name)));
    if (!tensor.defined())
      return io_failure(path, FailureCode::invalid_tensor,
                        fmt::format("tensor {}: expected a defined tensor, got {}", in_quotes(name),
                                    to_string(tensor)));
  }
  return ok_status();
}

Status check_metadata(const std::string& path, const Metadata& metadata) {
  for (const auto& [key, value] : metadata)
    if (!simdjson::validate_utf8(key) || !simdjson::validate_utf8(value))
      return io_failure(
          path, FailureCode::invalid_metadata,
          fmt::format("metadata {}: expected UTF-8, got other bytes", in_quotes(key)));
  return ok_status();
}

// Largest alignment first, so that every tensor is aligned to its element size; then by name.
std::vector<Row> in_file_order(const NamedTensors& tensors) {
  std::vector<Row> rows;
  for (const auto& named : tensors) rows.push_back(&named);
  std::sort(rows.begin(), rows.end(), [](Row a, Row b) {
    const auto dtype_a = io::format_dtype(a->second.dtype());
    const auto dtype_b = io::format_dtype(b->second.dtype());
    return std::tie(dtype_b, a->first) < std::tie(dtype_a, b->first);
  });
  return rows;
}

Status check_unique(const std::string& path, const NamedTensors& tensors) {
  std::vector<std::string_view> names;
  for (const auto& named : tensors) names.push_back(named.first);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return ok_status();
  return io_failure(path, FailureCode::duplicate_key,
                    "expected unique names, got " + in_quotes(*twice) + " twice");
}

std::string quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

std::string header_json(const std::vector<Row>& rows, const Metadata& metadata) {
  std::vector<std::string> items;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) pairs.push_back(quoted(key) + ":" + quoted(value));
    items.push_back(fmt::format("\"{}\":{{{}}}", io::kMetadataKey, fmt::join(pairs, ",")));
  }
  uint64_t begin = 0;
  for (const Row row : rows) {
    const Tensor& tensor = row->second;
    const uint64_t end = begin + tensor.bytes();
    items.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                quoted(row->first),
                                safetensors_dtype_name(io::format_dtype(tensor.dtype())),
                                fmt::join(tensor.sizes(), ","), begin, end));
    begin = end;
  }
  std::string json = fmt::format("{{{}}}", fmt::join(items, ","));
  json.resize((json.size() + io::kLengthBytes - 1) / io::kLengthBytes * io::kLengthBytes, ' ');
  return json;
}

Status check_header_size(const std::string& path, uint64_t bytes) {
  if (bytes <= io::kMaxHeaderBytes) return ok_status();
  return io_failure(path, FailureCode::header_too_large,
                    fmt::format("expected a header of at most {} bytes, got at least {}",
                                io::kMaxHeaderBytes, bytes));
}

// Less than the header will have; known before anything is built.
uint64_t text_bytes(const NamedTensors& tensors, const Metadata& metadata) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += name.size();
  for (const auto& [key, value] : metadata) bytes += key.size() + value.size();
  return bytes;
}

// Appends the elements of dimensions dim.. in row-major order; at most kMaxRank levels deep.
void gather(const Tensor& tensor, int dim, const std::byte* from, std::string* out) {
  const size_t element = dtype_bytes(tensor.dtype());
  if (dim == tensor.dim()) {
    out->append(reinterpret_cast<const char*>(from), element);
    return;
  }
  const int64_t size = tensor.sizes()[dim];
  const int64_t stride = tensor.strides()[dim];
  if (dim + 1 == tensor.dim() && stride == 1) {
    out->append(reinterpret_cast<const char*>(from), static_cast<size_t>(size) * element);
    return;
  }
  for (int64_t i = 0; i < size; ++i)
    gather(tensor, dim + 1, from + i * stride * static_cast<int64_t>(element), out);
}

Status write_data(AtomicFile& file, const Tensor& tensor) {
  if (tensor.numel() == 0) return ok_status();
  const HostElements host(tensor);
  const auto* data = static_cast<const std::byte*>(host.data());
  if (tensor.is_contiguous())
    return file.write({reinterpret_cast<const char*>(data), tensor.bytes()});
  std::string bytes;
  bytes.reserve(tensor.bytes());
  gather(tensor, 0, data, &bytes);
  return file.write(bytes);
}

}  // namespace

Status save_safetensors(const std::string& path, const NamedTensors& tensors,
                        const Metadata& metadata) {
  if (auto s = check_tensors(path, tensors); !s) return s;
  if (auto s = check_unique(path, tensors); !s) return s;
  if (auto s = check_metadata(path, metadata); !s) return s;
  if (auto s = check_header_size(path, text_bytes(tensors, metadata)); !s) return s;
  const std::vector<Row> rows = in_file_order(tensors);
  const std::string header = header_json(rows, metadata);
  if (auto s = check_header_size(path, header.size()); !s) return s;
  auto created = AtomicFile::create(path);
  if (!created) return created.failure();
  AtomicFile& file = created.value();
  const uint64_t length = header.size();
  char length_bytes[io::kLengthBytes];
  std::memcpy(length_bytes, &length, sizeof length);
  if (auto s = file.write({length_bytes, sizeof length_bytes}); !s) return s;
  if (auto s = file.write(header); !s) return s;
  for (const Row row : rows)
    if (auto s = write_data(file, row->second); !s) return s;
  return file.commit();
}

}  // namespace epilogue
