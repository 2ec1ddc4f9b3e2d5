// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <unordered_map>

#include "base/file.h"
#include "base/printable.h"
#include "core/tensor_impl.h"
#include "epilogue/io.h"
#include "io/message.h"
#include "io/safetensors_dtype.h"
#include "io/safetensors_json.h"

namespace epilogue {
namespace fs = std::filesystem;
using io::in_quotes;
using io::io_failure;

struct SafetensorsFile::Shard {
  MappedFile file;
  SafetensorsHeader header;

  static Result<std::shared_ptr<const Shard>> open(const std::string& path);
  std::byte* data_of(const SafetensorsEntry& entry) const {
    return const_cast<std::byte*>(file.bytes().data()) + header.data_offset + entry.begin;
  }
};

Result<std::shared_ptr<const SafetensorsFile::Shard>> SafetensorsFile::Shard::open(
    const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.failure();
  const auto bytes = file.value().bytes();
  auto header = parse_safetensors_header(bytes, path);
  if (!header) return header.failure();
  // Weights get written to (an optimizer's step). The mapping is private: a page that is written is
  // copied first, and the file stays as it is.
  if (::mprotect(const_cast<std::byte*>(bytes.data()), bytes.size(), PROT_READ | PROT_WRITE) != 0)
    return file_failure("map", path);
  return std::make_shared<const Shard>(Shard{std::move(file).value(), std::move(header).value()});
}

namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool is_aligned(const void* data, size_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// A C++ bool with another byte than 0 or 1 is undefined behaviour, so such data cannot be shared.
bool are_bools(const std::byte* data, size_t n) {
  return std::all_of(data, data + n, [](std::byte b) { return b <= std::byte{1}; });
}

Tensor copy_of(const std::byte* data, size_t bytes, const Dims& sizes, DType dtype) {
  Tensor out = empty(sizes, dtype);
  auto* to = static_cast<std::byte*>(out.data());
  if (dtype == DType::boolean) {
    std::transform(data, data + bytes, to,
                   [](std::byte b) { return b == std::byte{0} ? b : std::byte{1}; });
  } else if (bytes > 0) {
    std::memcpy(to, data, bytes);
  }
  return out;
}

}  // namespace

struct SafetensorsFile::HandedOut {
  std::mutex mutex;
  std::unordered_map<const std::byte*, Tensor> tensors;  // by address
};

void SafetensorsFile::add(std::shared_ptr<const Shard> shard) {
  if (handed_out_ == nullptr) handed_out_ = std::make_shared<HandedOut>();
  metadata_.insert(shard->header.metadata.begin(), shard->header.metadata.end());
  shards_.push_back(std::move(shard));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  if (path.ends_with(kIndexSuffix)) return open_index(path);
  auto shard = Shard::open(path);
  if (!shard) return shard.failure();
  SafetensorsFile out;
  out.path_ = path;
  const auto& entries = shard.value()->header.entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    out.names_.push_back(entries[i].name);
    out.where_.emplace(entries[i].name, Location{0, i});
  }
  out.add(std::move(shard).value());
  return out;
}

Result<SafetensorsFile> SafetensorsFile::open_index(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.failure();
  auto map = io::parse_index_json(text.value(), path);
  if (!map) return map.failure();
  SafetensorsFile out;
  out.path_ = path;
  std::map<std::string, size_t> shard_ids;
  for (const auto& [tensor, file] : map.value()) {
    if (!is_plain_name(file))
      return io_failure(path, FailureCode::invalid_shard_name,
                        fmt::format("weight_map of {}: expected a plain file name, got {}",
                                    in_quotes(tensor), in_quotes(file)));
    const auto [id, is_new] = shard_ids.emplace(file, out.shards_.size());
    if (!is_new) continue;
    auto shard = Shard::open((fs::path(path).parent_path() / file).string());
    if (!shard && shard.failure().code == FailureCode::file_error)
      return io_failure(path, FailureCode::missing_shard,
                        fmt::format("expected the shard {} beside the index, got {}",
                                    in_quotes(file), printable(shard.failure().message, 1024)));
    if (!shard) return shard.failure();
    out.add(std::move(shard).value());
  }
  for (size_t s = 0; s < out.shards_.size(); ++s) {
    const auto& entries = out.shards_[s]->header.entries;
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto listed = map.value().find(entries[i].name);
      if (listed != map.value().end() && shard_ids.at(listed->second) == s)
        out.where_.emplace(entries[i].name, Location{s, i});
    }
  }
  for (const auto& [tensor, file] : map.value()) {
    if (!out.contains(tensor))
      return io_failure(
          path, FailureCode::missing_tensor,
          fmt::format("expected the tensor {} in the shard {}, got a shard without it",
                      in_quotes(tensor), in_quotes(file)));
    out.names_.push_back(tensor);
  }
  return out;
}

const SafetensorsEntry* SafetensorsFile::entry(std::string_view name) const {
  const auto it = where_.find(name);
  if (it == where_.end()) return nullptr;
  return &shards_[it->second.shard]->header.entries[it->second.entry];
}

Result<Tensor> SafetensorsFile::tensor(std::string_view name) const {
  const auto it = where_.find(name);
  if (it == where_.end())
    return io_failure(path_, FailureCode::tensor_not_found,
                      fmt::format("expected the name of one of {} tensors, got {}", names_.size(),
                                  in_quotes(name)));
  const auto& shard = shards_[it->second.shard];
  const SafetensorsEntry& entry = shard->header.entries[it->second.entry];
  const auto dtype = io::engine_dtype(entry.dtype);
  if (!dtype)
    return io_failure(
        path_, FailureCode::unsupported_dtype,
        fmt::format("tensor {}: expected F32, BF16, F16, F64, I64, U8 or BOOL, got {}",
                    in_quotes(name), safetensors_dtype_name(entry.dtype)));
  if (entry.shape.size() > static_cast<size_t>(kMaxRank))
    return io_failure(path_, FailureCode::unsupported_rank,
                      fmt::format("tensor {}: expected at most {} dimensions, got {}",
                                  in_quotes(name), kMaxRank, entry.shape.size()));
  const Dims sizes{std::span<const int64_t>(entry.shape)};
  const size_t bytes = entry.end - entry.begin;
  std::byte* data = shard->data_of(entry);
  const bool shareable = bytes > 0 && is_aligned(data, dtype_bytes(*dtype)) &&
                         (*dtype != DType::boolean || are_bools(data, bytes));
  if (!shareable) return copy_of(data, bytes, sizes, *dtype);
  const std::scoped_lock lock(handed_out_->mutex);
  Tensor& known = handed_out_->tensors[data];
  if (!known.defined())
    known = Tensor::from_blob(data, sizes, *dtype, [keep_alive = shard](void*) {});
  return detail::make_view(known, sizes, known.strides());
}

Result<Tensor> SafetensorsFile::bytes(std::string_view name) const {
  const auto it = where_.find(name);
  if (it == where_.end())
    return io_failure(path_, FailureCode::tensor_not_found,
                      fmt::format("expected the name of one of {} tensors, got {}", names_.size(),
                                  in_quotes(name)));
  const auto& shard = shards_[it->second.shard];
  const SafetensorsEntry& entry = shard->header.entries[it->second.entry];
  return Tensor::from_blob(shard->data_of(entry), {static_cast<int64_t>(entry.end - entry.begin)},
                           DType::u8, [keep_alive = shard](void*) {});
}

}  // namespace epilogue
