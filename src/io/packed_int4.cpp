// SPDX-License-Identifier: Apache-2.0
// Weights of 4 bits as GPTQ and AWQ checkpoints of Hugging Face pack them, eight to an integer of
// 32 bits. Both give, for input k and output n in group g,
//
//   w[n][k] = scales[g][n] * (q[k][n] - z[g][n])
//
//   GPTQ  qweight [k / 8, n]: bits 4 i of row r are q[8 r + i]; g = g_idx[k]
//         qzeros [groups, n / 8]: bits 4 i of column c are z[8 c + i], less one in the first format
//   AWQ   qweight [k, n / 8], qzeros [groups, n / 8]: bits 4 i of column c are column
//         8 c + kAwqOrder[i] of either; g = k / group
//
// and files of weights that are rounded already, as rounded_file.h describes them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <locale>
#include <optional>
#include <sstream>

#include "epilogue/rounded_file.h"
#include "io/message.h"

namespace epilogue {
namespace {

using io::in_quotes;
using io::io_failure;

constexpr std::array<int, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr int64_t kPerWord = 8;
// Weights without zeros lie around this step.
constexpr uint8_t kMiddle = 8;
// Groups that the kernels hold.
constexpr int64_t kGroupUnit = 32;

// Little-endian integers of a file, wherever they lie.
class Words {
 public:
  Words() = default;
  Words(Tensor bytes, int64_t columns) : bytes_(std::move(bytes)), columns_(columns) {}
  uint32_t at(int64_t row, int64_t column) const {
    uint32_t word = 0;
    std::memcpy(&word, bytes_.data_as<uint8_t>() + 4 * (row * columns_ + column), sizeof word);
    return word;
  }

 private:
  Tensor bytes_;
  int64_t columns_ = 0;
};

class PackedReader {
 public:
  PackedReader(const SafetensorsFile& file, std::string_view prefix)
      : file_(file), prefix_(prefix) {
    if (!prefix_.empty() && !prefix_.ends_with('.')) prefix_ += '.';
  }

  Result<Int4Weight> gptq(GptqZeros zeros) {
    if (auto failure = open(true)) return *failure;
    Words order;
    std::vector<int64_t> groups;
    const std::string g_idx = prefix_ + "g_idx";
    if (file_.contains(g_idx)) {
      if (auto failure = words_of("g_idx", {k_}, order)) return *failure;
      for (int64_t j = 0; j < k_; ++j) groups.push_back(static_cast<int32_t>(order.at(0, j)));
    }
    const bool moves =
        std::any_of(groups.begin(), groups.end(),
                    [&, j = int64_t{0}](int64_t g) mutable { return g != j++ / group_; });
    std::vector<int64_t> columns;
    if (moves)
      if (auto failure = order_of(groups, columns)) return *failure;
    const int added = zeros == GptqZeros::less_one ? 1 : 0;
    return weight(
        columns, [&](int64_t n, int64_t k) { return qweight_.at(k / 8, n) >> (k % 8 * 4) & 15; },
        [&](int64_t n, int64_t g) {
          return (qzeros_.at(g, n / 8) >> (n % 8 * 4) & 15) + static_cast<uint32_t>(added);
        });
  }

  Result<Int4Weight> awq() {
    if (auto failure = open(false)) return *failure;
    std::array<int, 8> bit{};  // of each column of eight
    for (size_t i = 0; i < bit.size(); ++i)
      bit[static_cast<size_t>(kAwqOrder[i])] = static_cast<int>(4 * i);
    const auto from = [&bit](const Words& words, int64_t row, int64_t n) {
      return words.at(row, n / 8) >> bit[static_cast<size_t>(n % 8)] & 15;
    };
    return weight(
        {}, [&](int64_t n, int64_t k) { return from(qweight_, k, n); },
        [&](int64_t n, int64_t g) { return from(qzeros_, g, n); });
  }

 private:
  Failure fail(FailureCode code, std::string_view name, std::string_view detail) const {
    return io_failure(file_.path(), code,
                      fmt::format("tensor {}: {}", in_quotes(prefix_ + std::string(name)), detail));
  }

  static std::string text_of(SafetensorsDtype dtype, const std::vector<int64_t>& shape) {
    return fmt::format("{} [{}]", safetensors_dtype_name(dtype), fmt::join(shape, ", "));
  }

  // Integers of that shape.
  std::optional<Failure> words_of(std::string_view name, const std::vector<int64_t>& shape,
                                  Words& out) const {
    const std::string full = prefix_ + std::string(name);
    auto bytes = file_.bytes(full);
    if (!bytes) return bytes.failure();
    const SafetensorsEntry& entry = *file_.entry(full);
    if (entry.dtype != SafetensorsDtype::i32 || entry.shape != shape)
      return fail(FailureCode::invalid_tensor, name,
                  fmt::format("expected {}, got {}", text_of(SafetensorsDtype::i32, shape),
                              text_of(entry.dtype, entry.shape)));
    out = Words(std::move(bytes).value(), shape.back());
    return std::nullopt;
  }

  // Sizes follow from the two matrices; everything else must fit them.
  std::optional<Failure> open(bool packs_inputs) {
    const std::string name = prefix_ + "qweight";
    auto bytes = file_.bytes(name);
    if (!bytes) return bytes.failure();
    auto scales = file_.tensor(prefix_ + "scales");
    if (!scales) return scales.failure();
    scales_ = std::move(scales).value();
    const SafetensorsEntry& q = *file_.entry(name);
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    const bool is_matrix = q.dtype == SafetensorsDtype::i32 && q.shape.size() == 2 &&
                           std::ranges::all_of(q.shape, [](int64_t size) {
                             return size > 0 && size <= most / kPerWord;
                           });
    if (!is_matrix)
      return fail(FailureCode::invalid_tensor, "qweight",
                  "expected a matrix of I32, got " + text_of(q.dtype, q.shape));
    k_ = packs_inputs ? q.shape[0] * kPerWord : q.shape[0];
    n_ = packs_inputs ? q.shape[1] : q.shape[1] * kPerWord;
    const bool has_dtype = scales_.dtype() == DType::f16 || scales_.dtype() == DType::bf16;
    if (!has_dtype || scales_.dim() != 2 || scales_.size(1) != n_ || scales_.size(0) < 1)
      return fail(FailureCode::invalid_tensor, "scales",
                  fmt::format("expected F16 or BF16 [groups, {}], got {}", n_, to_string(scales_)));
    groups_ = scales_.size(0);
    group_ = k_ / groups_;
    if (group_ * groups_ != k_ || group_ % kGroupUnit != 0)
      return fail(FailureCode::invalid_tensor, "scales",
                  fmt::format("expected groups of a multiple of {} of {} inputs, got {} groups",
                              kGroupUnit, k_, groups_));
    if (n_ % kPerWord != 0)
      return fail(FailureCode::invalid_tensor, "qweight",
                  fmt::format("expected a multiple of {} outputs, got {}", kPerWord, n_));
    qweight_ = Words(std::move(bytes).value(), q.shape[1]);
    return words_of("qzeros", {groups_, n_ / kPerWord}, qzeros_);
  }

  // Inputs sorted by their groups, which must be equally large.
  std::optional<Failure> order_of(const std::vector<int64_t>& groups,
                                  std::vector<int64_t>& columns) const {
    std::vector<std::vector<int64_t>> members(static_cast<size_t>(groups_));
    for (int64_t j = 0; j < k_; ++j) {
      const int64_t g = groups[static_cast<size_t>(j)];
      if (g < 0 || g >= groups_)
        return fail(FailureCode::invalid_tensor, "g_idx",
                    fmt::format("expected groups below {}, got {} at {}", groups_, g, j));
      members[static_cast<size_t>(g)].push_back(j);
    }
    for (size_t g = 0; g < members.size(); ++g) {
      if (static_cast<int64_t>(members[g].size()) != group_)
        return fail(FailureCode::invalid_tensor, "g_idx",
                    fmt::format("expected groups of {} inputs, got {} in group {}", group_,
                                members[g].size(), g));
      columns.insert(columns.end(), members[g].begin(), members[g].end());
    }
    return std::nullopt;
  }

  // columns: input of each column; empty: the same. step(n, input), zero(n, group).
  template <class Step, class Zero>
  Int4Weight weight(const std::vector<int64_t>& columns, const Step& step, const Zero& zero) const {
    Int4Weight w{n_,
                 k_,
                 group_,
                 empty({n_, k_ / 2}, DType::u8),
                 empty({n_, groups_}, scales_.dtype()),
                 empty({n_, groups_}, DType::u8),
                 {}};
    auto* steps = w.steps.data_as<uint8_t>();
    auto* zeros = w.zeros.data_as<uint8_t>();
    const auto input = [&](int64_t j) {
      return columns.empty() ? j : columns[static_cast<size_t>(j)];
    };
    // Both formats have outputs side by side: bits of both types move as they are.
    const auto* const from = static_cast<const char*>(scales_.data());
    auto* const scales = static_cast<char*>(w.scales.data());
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t j = 0; j < k_; j += 2)
        *steps++ = static_cast<uint8_t>(step(n, input(j)) | step(n, input(j + 1)) << 4);
      for (int64_t g = 0; g < groups_; ++g) {
        *zeros++ = static_cast<uint8_t>(zero(n, g));
        std::memcpy(scales + 2 * (n * groups_ + g), from + 2 * (g * n_ + n), 2);
      }
    }
    const auto* const first = w.zeros.data_as<uint8_t>();
    if (std::all_of(first, first + n_ * groups_, [](uint8_t z) { return z == kMiddle; }))
      w.zeros = {};
    if (columns.empty()) return w;
    w.order = empty({k_}, DType::i64);
    std::copy(columns.begin(), columns.end(), w.order.data_as<int64_t>());
    return w;
  }

  const SafetensorsFile& file_;
  std::string prefix_;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t groups_ = 0;
  int64_t group_ = 0;
  Tensor scales_;
  Words qweight_;
  Words qzeros_;
};

}  // namespace

Result<Int4Weight> read_gptq(const SafetensorsFile& file, std::string_view prefix,
                             GptqZeros zeros) {
  return PackedReader(file, prefix).gptq(zeros);
}

Result<Int4Weight> read_awq(const SafetensorsFile& file, std::string_view prefix) {
  return PackedReader(file, prefix).awq();
}

namespace {

constexpr std::string_view kRoundedKey = "rounded.";

// As the metadata has them.
struct RoundedSizes {
  bool has_bytes = false;
  int64_t n = 0;
  int64_t k = 0;
  int64_t group = 0;
};

// Nullopt where the text says something else.
std::optional<RoundedSizes> sizes_of(const std::string& text) {
  std::istringstream words(text);
  words.imbue(std::locale::classic());
  std::string kind;
  RoundedSizes s;
  words >> kind >> s.n >> s.k;
  s.has_bytes = kind == "int8";
  if (!s.has_bytes) words >> s.group;
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  std::string rest;
  if (words.fail() || (words >> rest) || (kind != "int4" && kind != "int8") || s.n < 1 || s.k < 1 ||
      s.n > most || s.k > most)
    return std::nullopt;
  if (!s.has_bytes && (s.group < kGroupUnit || s.group > most || s.group % kGroupUnit != 0))
    return std::nullopt;
  return s;
}

// A tensor of one of the dtypes and that shape.
Result<Tensor> part_of(const SafetensorsFile& file, const std::string& name,
                       std::initializer_list<DType> dtypes, const Dims& sizes) {
  auto part = file.tensor(name);
  if (!part) return part.failure();
  const Tensor& t = part.value();
  if (std::ranges::find(dtypes, t.dtype()) != dtypes.end() && t.sizes() == sizes) return t;
  std::vector<std::string_view> names;
  for (const DType d : dtypes) names.push_back(dtype_name(d));
  return io_failure(file.path(), FailureCode::invalid_tensor,
                    fmt::format("tensor {}: expected {} {}, got {}", in_quotes(name),
                                fmt::join(names, " or "), to_string(sizes), to_string(t)));
}

}  // namespace

Status save_rounded(const std::string& path, const NamedRounded& weights,
                    const NamedTensors& others, const Metadata& metadata) {
  NamedTensors tensors = others;
  Metadata described = metadata;
  for (const auto& [name, any] : weights) {
    const std::string key = std::string(kRoundedKey) + name;
    if (const auto* const w = std::get_if<Int8Weight>(&any)) {
      require_int8_weight(*w, "save_rounded");
      described[key] = fmt::format("int8 {} {}", w->n, w->k);
      tensors.emplace_back(name + ".steps", w->steps);
      tensors.emplace_back(name + ".scales", w->scales);
      continue;
    }
    const auto& w = std::get<Int4Weight>(any);
    require_int4_weight(w, "save_rounded");
    if (w.order.defined())
      throw Error("[save_rounded] expected inputs in their order, got an order of their own in " +
                  in_quotes(name));
    described[key] = fmt::format("int4 {} {} {}", w.n, w.k, w.group);
    tensors.emplace_back(name + ".steps", w.steps);
    tensors.emplace_back(name + ".scales", w.scales);
    if (w.zeros.defined()) tensors.emplace_back(name + ".zeros", w.zeros);
  }
  return save_safetensors(path, tensors, described);
}

Result<RoundedWeight> read_rounded(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.metadata().find(std::string(kRoundedKey) + name);
  if (found == file.metadata().end())
    return io_failure(
        file.path(), FailureCode::tensor_not_found,
        fmt::format("expected a rounded weight {}, got none of that name", in_quotes(name)));
  const auto s = sizes_of(found->second);
  if (!s)
    return io_failure(
        file.path(), FailureCode::invalid_metadata,
        fmt::format("{}: expected \"int8 n k\" or \"int4 n k group\" with groups of a multiple of "
                    "{}, got {}",
                    in_quotes(found->first), kGroupUnit, in_quotes(found->second)));
  if (s->has_bytes) {
    auto steps = part_of(file, name + ".steps", {DType::u8}, {s->n, s->k});
    if (!steps) return steps.failure();
    auto scales = part_of(file, name + ".scales", {DType::f32}, {s->n});
    if (!scales) return scales.failure();
    return RoundedWeight(Int8Weight{s->n, s->k, steps.value(), scales.value()});
  }
  Int4Weight w{s->n, s->k, s->group, {}, {}, {}, {}};
  const int64_t groups = (w.k + w.group - 1) / w.group;
  auto steps = part_of(file, name + ".steps", {DType::u8}, {w.n, (w.k + 1) / 2});
  if (!steps) return steps.failure();
  auto scales = part_of(file, name + ".scales", {DType::bf16, DType::f16}, {w.n, groups});
  if (!scales) return scales.failure();
  w.steps = steps.value();
  w.scales = scales.value();
  if (file.contains(name + ".zeros")) {
    auto zeros = part_of(file, name + ".zeros", {DType::u8}, {w.n, groups});
    if (!zeros) return zeros.failure();
    w.zeros = zeros.value();
    const auto* const first = w.zeros.data_as<uint8_t>();
    if (std::any_of(first, first + w.zeros.numel(), [](uint8_t z) { return z > 16; }))
      return io_failure(file.path(), FailureCode::invalid_tensor,
                        fmt::format("tensor {}: expected zeros from 0 to 16, got a larger one",
                                    in_quotes(name + ".zeros")));
  }
  return RoundedWeight(std::move(w));
}

std::vector<std::string> rounded_names(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with(kRoundedKey)) names.push_back(key.substr(kRoundedKey.size()));
  return names;
}

}  // namespace epilogue
