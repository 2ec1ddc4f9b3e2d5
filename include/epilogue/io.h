// SPDX-License-Identifier: Apache-2.0
// Tensors from and to files: safetensors checkpoints (single or sharded) and IDX data sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/base/result.h"
#include "epilogue/int4_weight.h"
#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Every failure below reads "FILE: CODE: what was expected, what came" on one line; names that come
// from a file are escaped and cut to 80 characters. I/O errors have the code FileError.

// The element types of the format, in its own order (the writer sorts by it).
enum class SafetensorsDtype : uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};
std::string_view safetensors_dtype_name(SafetensorsDtype dtype);  // "BF16", as in files
int safetensors_dtype_bits(SafetensorsDtype dtype);

using Metadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::f32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes [begin, end) from the start of the data, i.e. from data_offset
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data; names are unique
  Metadata metadata;
  uint64_t data_offset = 0;  // where the data begin in the file
};

// Checks everything that the format demands of `file` (a whole file) and returns its header. After
// success every entry lies inside the file, and its bytes are exactly what dtype and shape need.
// Codes, in the order of the checks: HeaderTooSmall, HeaderTooLarge, InvalidHeaderLength,
// InvalidHeader, InvalidHeaderStart, InvalidHeaderDeserialization, DuplicateKey, InvalidOffset,
// ValidationOverflow, MisalignedSlice, TensorInvalidInfo, MetadataIncompleteBuffer.
// `file_name` is for messages only.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view file_name = "safetensors");

// An open checkpoint: one file, or all shards of a Hugging Face index. Cheap to move; safe to read
// from several threads.
class SafetensorsFile {
 public:
  // Maps `path` and checks its header. A path that ends in ".index.json" is an index: its shards,
  // which must lie in the same folder, are all opened. Codes of an index: InvalidIndex,
  // DuplicateKey, InvalidShardName, MissingShard, MissingTensor. The files must not be truncated
  // while they are in use.
  static Result<SafetensorsFile> open(const std::string& path);

  // Tensor names: in the order of the data, or of the names where there are shards.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const { return where_.find(name) != where_.end(); }
  // The `__metadata__` of the file; of several shards, the union (the first one wins).
  const Metadata& metadata() const { return metadata_; }
  // The header's entry of a tensor; null when there is none of that name.
  const SafetensorsEntry* entry(std::string_view name) const;

  // The tensor over the mapped bytes, without a copy; it keeps the mapping alive and may outlive
  // this object. Writing to it changes this process's view only, never the file; tensors of two
  // calls for one name share memory and version(). A copy is made where the data are not aligned to
  // the element size, and of BOOL data with bytes other than 0 and 1 (any other byte is true).
  // Codes: TensorNotFound, UnsupportedDtype, UnsupportedRank.
  Result<Tensor> tensor(std::string_view name) const;
  // The tensor's bytes, u8 [n], over the mapping likewise: of element types that the engine does
  // not have. Code: TensorNotFound.
  Result<Tensor> bytes(std::string_view name) const;
  // As it was opened.
  const std::string& path() const { return path_; }

 private:
  struct Shard;
  struct Location {
    size_t shard;
    size_t entry;
  };
  static Result<SafetensorsFile> open_index(const std::string& path);
  void add(std::shared_ptr<const Shard> shard);

  std::string path_;
  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<std::string> names_;
  std::map<std::string, Location, std::less<>> where_;
  // Tensors that were handed out: one count of writes per entry. Copies of the file share it.
  struct HandedOut;
  std::shared_ptr<HandedOut> handed_out_;
  Metadata metadata_;
};

// The linear layer `prefix` ("model.layers.0.mlp.up_proj") of a checkpoint with 4-bit weights, as
// Hugging Face stores what AutoGPTQ or GPTQModel (qweight, qzeros, scales, and g_idx) and AutoAWQ's
// GEMM (qweight, qzeros, scales) made of it; the file's quantization_config says which. Packed and
// scaled values are taken over bit for bit. GPTQ's first format ("checkpoint_format": "gptq")
// stores each zero less one, the second ("gptq_v2") as it is. Codes: TensorNotFound,
// UnsupportedDtype, InvalidTensor.
enum class GptqZeros : uint8_t { less_one, as_they_are };
Result<Int4Weight> read_gptq(const SafetensorsFile& file, std::string_view prefix,
                             GptqZeros zeros = GptqZeros::less_one);
Result<Int4Weight> read_awq(const SafetensorsFile& file, std::string_view prefix);

// Writes a checkpoint as the reference writer does (largest element type first, then by name; data
// 8-byte aligned), under a temporary name, and renames it: `path` is never half a file, and may be
// one that is mapped. Missing folders are made. Tensors of any strides and device; every tensor's
// bytes are written, shared or not. Codes: DuplicateKey, InvalidName, InvalidTensor,
// InvalidMetadata, HeaderTooLarge.
Status save_safetensors(const std::string& path, const NamedTensors& tensors,
                        const Metadata& metadata = {});

// An IDX file of bytes (the MNIST format), row-major.
struct IdxFile {
  std::vector<int64_t> dims;  // 1 to 3
  std::vector<uint8_t> data;
};

// Reads an IDX file, gzip or plain, of unsigned bytes with 1 to 3 dimensions. With max_items >= 0
// only the first so many items (of the first dimension) are read, and what follows them is not
// checked. Codes: IdxHeaderTooSmall, IdxInvalidMagic, IdxUnsupportedType, IdxUnsupportedRank,
// IdxTooLarge, IdxTruncated, IdxTrailingBytes, IdxCorrupt.
Result<IdxFile> read_idx(const std::string& path, int64_t max_items = -1);

struct DatasetSplit {
  Tensor images;  // f32 [N, pixels]
  Tensor labels;  // i64 [N]
};

struct Dataset {
  DatasetSplit train;
  DatasetSplit test;
};

struct FashionMnistOptions {
  std::string dir = "/usr/share/datasets/fashion-mnist";
  bool train = true;  // a split that is not read has undefined tensors
  bool test = true;
  int64_t max_images = -1;  // per split; negative is all
  // Arguments of scaled_pixel(); mean 0 and std 1 leave pixels in [0, 1].
  float mean = 0.2860F;
  float std = 0.3530F;
};

// A network's input for a pixel, 0 to 255.
inline float scaled_pixel(float value, float mean, float std) {
  return (value / 255.0F - mean) / std;
}

// Fashion-MNIST as Debian packages it. Codes: those of read_idx, DatasetMissing (the message names
// the package), DatasetMismatch (the files do not fit each other or the data set).
Result<Dataset> load_fashion_mnist(const FashionMnistOptions& options = {});

}  // namespace epilogue

#pragma GCC visibility pop
