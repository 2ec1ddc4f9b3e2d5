// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/train/prediction_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>

#include "base/thread_pool.h"
#include "epilogue/io.h"
#include "epilogue/ops.h"
#include "io/csv_parts.h"

namespace epilogue::tool {
namespace {

using train::ModelDescription;
using train::Predictor;

// Rows that a table brings at once, and rows that the network takes at once, are not the same: what
// is left waits for the next call.
class TableInput final : public PredictionInput {
 public:
  TableInput(const Predictor& model, io::CsvParts parts)
      : model_(model), parts_(std::move(parts)) {}

  std::optional<Tensor> next(int64_t max_rows) override {
    while (waiting_rows_ < max_rows && next_part_ < parts_.count()) read_parts();
    if (waiting_rows_ == 0) return {};
    std::vector<Tensor> taken;
    for (int64_t wanted = max_rows; wanted > 0 && !waiting_.empty();) {
      const Tensor first = waiting_.front();
      const int64_t rows = std::min(wanted, first.size(0));
      taken.push_back(slice(first, 0, 0, rows));
      waiting_.pop_front();
      if (rows < first.size(0)) waiting_.push_front(slice(first, 0, rows, first.size(0)));
      wanted -= rows;
      waiting_rows_ -= rows;
    }
    return model_.laid_out(taken.size() == 1 ? contiguous(taken[0]) : cat(taken, 0));
  }
  int64_t total() const override { return parts_.bytes(); }
  int64_t done() const override { return next_part_ == 0 ? 0 : parts_.end(next_part_ - 1); }
  std::vector<int64_t> unseen() const override { return unseen_; }

 private:
  // One part per thread.
  void read_parts() {
    const size_t begin = next_part_;
    const size_t count =
        std::min(parts_.count() - begin, static_cast<size_t>(std::max(1, num_threads())));
    std::vector<std::optional<Result<Tensor>>> stored(count);
    std::vector<std::vector<int64_t>> unseen(count);
    parallel_blocks(static_cast<int64_t>(count), [&](int64_t block) {
      const auto i = static_cast<size_t>(block);
      const auto rows = parts_.part(begin + i);
      if (rows) {
        stored[i] = model_.stored_of(rows.value(), &unseen[i]);
      } else {
        stored[i] = rows.failure();
      }
    });
    next_part_ += count;
    for (size_t i = 0; i < count; ++i) {
      const Tensor rows = stored[i]->value();
      unseen_.resize(std::max(unseen_.size(), unseen[i].size()));
      for (size_t f = 0; f < unseen[i].size(); ++f) unseen_[f] += unseen[i][f];
      if (rows.size(0) == 0) continue;
      waiting_rows_ += rows.size(0);
      waiting_.push_back(rows);
    }
  }

  const Predictor& model_;
  io::CsvParts parts_;
  size_t next_part_ = 0;
  std::deque<Tensor> waiting_;  // stored rows
  int64_t waiting_rows_ = 0;
  std::vector<int64_t> unseen_;
};

// Values in memory, or mapped: `rows_at(begin, end)` gives f32 [end - begin, inputs].
class RowsInput final : public PredictionInput {
 public:
  using RowsAt = std::function<Tensor(int64_t begin, int64_t end)>;
  RowsInput(const Predictor& model, int64_t rows, RowsAt rows_at)
      : model_(model), rows_(rows), rows_at_(std::move(rows_at)) {}
  std::optional<Tensor> next(int64_t max_rows) override {
    if (at_ == rows_) return {};
    const int64_t begin = at_;
    at_ = std::min(rows_, begin + max_rows);
    return model_.inputs_of(rows_at_(begin, at_));
  }
  int64_t total() const override { return rows_; }
  int64_t done() const override { return at_; }

 private:
  const Predictor& model_;
  int64_t rows_;
  RowsAt rows_at_;
  int64_t at_ = 0;
};

bool is_idx(const std::string& path) {
  std::array<unsigned char, 4> head{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(head.data()), head.size())) return false;
  return (head[0] == 0x1f && head[1] == 0x8b) ||
         (head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] >= 1 && head[3] <= 3);
}

[[noreturn]] void refuse_sizes(const std::string& path, int64_t expected, const std::string& got) {
  throw Error(fmt::format("[predict] {}: expected rows of {} values, got {}", path, expected, got));
}

std::unique_ptr<PredictionInput> idx_input(const Predictor& model, const std::string& path) {
  const auto idx = std::make_shared<IdxFile>(read_idx(path).value());
  const int64_t width = model.description().network.inputs;
  int64_t values = 1;
  for (size_t d = 1; d < idx->dims.size(); ++d) values *= idx->dims[d];
  if (values != width) refuse_sizes(path, width, fmt::format("items of {}", values));
  return std::make_unique<RowsInput>(model, idx->dims[0], [idx, width](int64_t begin, int64_t end) {
    const Tensor rows = empty({end - begin, width});
    std::copy(idx->data.begin() + begin * width, idx->data.begin() + end * width,
              rows.data_as<float>());
    return rows;
  });
}

std::unique_ptr<PredictionInput> tensor_input(const Predictor& model, const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  if (file.names().size() != 1)
    throw Error(
        fmt::format("[predict] {}: expected one tensor, got {}", path, file.names().size()));
  const Tensor all = file.tensor(file.names().front()).value();
  const train::ModelDescription& d = model.description();
  const int64_t width = d.table ? static_cast<int64_t>(d.table->features.size()) : d.network.inputs;
  if (all.dim() != 2 || all.size(1) != width || !is_floating(all.dtype()))
    refuse_sizes(path, width, to_string(all));
  return std::make_unique<RowsInput>(model, all.size(0), [all](int64_t begin, int64_t end) {
    return slice(all, 0, begin, end).to(DType::f32);
  });
}

}  // namespace

std::unique_ptr<PredictionInput> open_prediction_input(const Predictor& model,
                                                       const std::string& path,
                                                       const PredictionInputOptions& options) {
  if (path.ends_with(".safetensors")) return tensor_input(model, path);
  if (is_idx(path)) return idx_input(model, path);
  const ModelDescription& d = model.description();
  if (!d.table)
    throw Error("[predict] " + path +
                ": expected IDX images or a .safetensors file, because the model learned from "
                "images; got neither");
  auto parts = io::CsvParts::open(path, {.delimiter = options.delimiter.value_or(d.delimiter),
                                         .header = options.has_header.value_or(d.has_header)});
  return std::make_unique<TableInput>(model, std::move(parts).value());
}

}  // namespace epilogue::tool
