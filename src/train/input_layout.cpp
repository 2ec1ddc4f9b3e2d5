// SPDX-License-Identifier: Apache-2.0
// A network's inputs, made of stored rows.
#include <cmath>
#include <numeric>

#include "base/thread_pool.h"
#include "epilogue/data.h"
#include "epilogue/ops.h"

namespace epilogue::train {
namespace {

constexpr int64_t kLaidOutGrain = 16384;  // values; below it the wake-up of a thread costs more

// The inputs of one stored value; where they end.
float* put(const StoredColumn& column, float value, float* to) {
  const bool is_missing = column.marks_missing && std::isnan(value);
  if (!column.is_category) {
    *to++ = is_missing ? 0.0F : value;
  } else {
    std::fill_n(to, column.width, 0.0F);
    if (value >= 0) to[static_cast<int64_t>(value)] = 1;
    to += column.width;
  }
  if (column.marks_missing) *to++ = is_missing ? 1.0F : 0.0F;
  return to;
}

}  // namespace

InputLayout::InputLayout(std::vector<StoredColumn> columns) : columns_(std::move(columns)) {
  for (const StoredColumn& c : columns_) {
    if (c.width < 0)
      throw Error("[InputLayout] expected a width of 0 or more, got " + std::to_string(c.width));
    width_ += c.width + (c.marks_missing ? 1 : 0);
  }
}

Tensor InputLayout::inputs_of(const Tensor& stored) const {
  const auto columns = static_cast<int64_t>(columns_.size());
  if (!stored.defined() || stored.dtype() != DType::f32 || stored.dim() != 2 ||
      stored.size(1) != columns || stored.device().type != Device().type)
    throw Error("[InputLayout] expected f32 [n, " + std::to_string(columns) + "], got " +
                (stored.defined() ? to_string(stored) : "an undefined tensor"));
  const Tensor whole = contiguous(stored);
  const int64_t n = whole.size(0);
  const Tensor inputs = empty({n, width_});
  const auto* from = whole.data_as<float>();
  auto* to = inputs.data_as<float>();
  parallel_for(n, 1 + kLaidOutGrain / (width_ + 1), [&](int64_t begin, int64_t end) {
    float* at = to + begin * width_;
    for (const float* value = from + begin * columns; value != from + end * columns;)
      for (const StoredColumn& column : columns_) at = put(column, *value++, at);
  });
  return inputs;
}

Examples Examples::laid_out() const {
  if (!layout) return *this;
  return {layout->inputs_of(inputs), targets, {}};
}

int64_t Feature::width() const {
  const int64_t indicator = marks_missing ? 1 : 0;
  switch (kind) {
    case FeatureKind::number:
    case FeatureKind::date: return 1 + indicator;
    case FeatureKind::category: return static_cast<int64_t>(categories.size()) + indicator;
    case FeatureKind::hashed: return buckets + indicator;
  }
  return 0;
}

int64_t TableMeaning::inputs() const {
  return std::accumulate(features.begin(), features.end(), int64_t{0},
                         [](int64_t sum, const Feature& f) { return sum + f.width(); });
}

std::shared_ptr<const InputLayout> TableMeaning::layout() const {
  std::vector<StoredColumn> columns;
  bool is_plain = true;
  for (const Feature& f : features) {
    is_plain = is_plain && !f.is_text() && !f.marks_missing;
    columns.push_back({.is_category = f.is_text(),
                       .width = f.width() - (f.marks_missing ? 1 : 0),
                       .marks_missing = f.marks_missing});
  }
  return is_plain ? nullptr : std::make_shared<const InputLayout>(std::move(columns));
}

}  // namespace epilogue::train
