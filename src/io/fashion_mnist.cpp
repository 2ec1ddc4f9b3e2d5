// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <tuple>

#include "epilogue/io.h"
#include "io/message.h"

namespace epilogue {
namespace {

using io::io_failure;

constexpr int64_t kSide = 28;
constexpr int64_t kClasses = 10;

// NAME.gz as Debian packages it, or NAME as unpacked.
Result<std::string> find_file(const std::string& dir, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(dir) / name;
  std::error_code error;
  for (const std::string& candidate : {plain.string() + ".gz", plain.string()})
    if (std::filesystem::exists(candidate, error)) return candidate;
  return io_failure(dir, FailureCode::dataset_missing,
                    fmt::format("expected the Fashion-MNIST file {}.gz, got none; install it with: "
                                "apt install dataset-fashion-mnist",
                                name));
}

Result<IdxFile> read_part(const FashionMnistOptions& options, const std::string& name) {
  auto path = find_file(options.dir, name);
  if (!path) return path.failure();
  return read_idx(path.value(), options.max_images);
}

Tensor to_images(const IdxFile& file, const FashionMnistOptions& options) {
  std::array<float, 256> pixel_values{};
  for (size_t i = 0; i < pixel_values.size(); ++i)
    pixel_values[i] = scaled_pixel(static_cast<float>(i), options.mean, options.std);
  Tensor images = empty({file.dims[0], kSide * kSide}, DType::f32);
  auto* to = images.data_as<float>();
  for (size_t i = 0; i < file.data.size(); ++i) to[i] = pixel_values[file.data[i]];
  return images;
}

Tensor to_labels(const IdxFile& file) {
  Tensor labels = empty({file.dims[0]}, DType::i64);
  auto* to = labels.data_as<int64_t>();
  for (size_t i = 0; i < file.data.size(); ++i) to[i] = file.data[i];
  return labels;
}

Result<DatasetSplit> load_split(const FashionMnistOptions& options, const std::string& prefix) {
  auto images = read_part(options, prefix + "-images-idx3-ubyte");
  if (!images) return images.failure();
  auto labels = read_part(options, prefix + "-labels-idx1-ubyte");
  if (!labels) return labels.failure();
  const auto& image_dims = images.value().dims;
  const auto& label_dims = labels.value().dims;
  if (image_dims.size() != 3 || image_dims[1] != kSide || image_dims[2] != kSide ||
      label_dims.size() != 1 || label_dims[0] != image_dims[0])
    return io_failure(
        options.dir, FailureCode::dataset_mismatch,
        fmt::format("{}: expected images [N, 28, 28] and labels [N], got {} and {}", prefix,
                    to_string(Dims(image_dims)), to_string(Dims(label_dims))));
  for (size_t i = 0; i < labels.value().data.size(); ++i)
    if (labels.value().data[i] >= kClasses)
      return io_failure(options.dir, FailureCode::dataset_mismatch,
                        fmt::format("{}: expected labels below {}, got {} at {}", prefix, kClasses,
                                    labels.value().data[i], i));
  return DatasetSplit{to_images(images.value(), options), to_labels(labels.value())};
}

}  // namespace

Result<Dataset> load_fashion_mnist(const FashionMnistOptions& options) {
  if (!(options.std > 0))
    throw Error(fmt::format("[load_fashion_mnist] expected std > 0, got {}", options.std));
  Dataset out;
  for (const auto& [wanted, prefix, split] : {std::tuple{options.train, "train", &out.train},
                                              std::tuple{options.test, "t10k", &out.test}}) {
    if (!wanted) continue;
    auto loaded = load_split(options, prefix);
    if (!loaded) return loaded.failure();
    *split = std::move(loaded).value();
  }
  return out;
}

}  // namespace epilogue
