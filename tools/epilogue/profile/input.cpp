// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/profile/input.h"

#include <algorithm>

#include "epilogue/io.h"
#include "epilogue/ops.h"

namespace epilogue::tool {
namespace {

Tensor image_rows(int64_t rows, int64_t width) {
  FashionMnistOptions options;
  options.train = false;
  const Tensor images = load_fashion_mnist(options).value().test.images;
  const Tensor out = zeros({rows, width});
  const int64_t used = std::min(width, images.size(1));
  const float* from = images.data_as<float>();
  auto* to = out.data_as<float>();
  for (int64_t i = 0; i < rows; ++i)
    std::copy_n(from + i % images.size(0) * images.size(1), used, to + i * width);
  return out;
}

}  // namespace

bool is_input_file(const std::string& source) { return source.ends_with(".safetensors"); }

Tensor input_rows(const std::string& source, int64_t rows, int64_t width, DType dtype) {
  if (source == "random") return randn({rows, width}, dtype);
  if (source == "fashion-mnist") return to(image_rows(rows, width), dtype);
  throw Error("[--input] expected random, fashion-mnist or a .safetensors file, got '" + source +
              "'");
}

Tensor input_from_file(const std::string& path, DType dtype) {
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  std::string name = "input";
  if (!file.contains(name)) {
    if (file.names().size() != 1)
      throw Error("[--input] " + path +
                  ": expected a tensor named 'input' or one tensor only, got " +
                  std::to_string(file.names().size()) + " tensors");
    name = file.names().front();
  }
  const Tensor tensor = file.tensor(name).value();
  if (tensor.dim() < 2 || tensor.numel() == 0 || !is_floating(tensor.dtype()))
    throw Error("[--input] " + path +
                ": expected a floating tensor of rank 2 or more, not empty, got " + name + " " +
                to_string(tensor));
  return to(tensor, dtype);
}

}  // namespace epilogue::tool
