// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <exception>
#include <numeric>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "core/host_elements.h"
#include "epilogue/data.h"
#include "epilogue/ops.h"
#include "io/checksum.h"

namespace epilogue::train {
namespace {

constexpr int64_t kGrainBytes = 65536;  // below it the wake-up of a thread costs more

// floor(64 random bits * n / 2^64), as randint() does.
uint64_t below(uint64_t n, uint64_t seed, uint64_t counter, uint64_t stream) {
  const auto words = philox4x32(seed, counter, stream);
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * n >> 64);
}

Examples checked(Examples examples, int64_t batch_size) {
  if (batch_size < 1)
    throw Error("[EpochBatches] expected a batch_size of 1 or more, got " +
                std::to_string(batch_size));
  const Tensor& inputs = examples.inputs;
  const Tensor& targets = examples.targets;
  if (!inputs.defined() || !targets.defined() || inputs.dim() < 1 || targets.dim() < 1 ||
      inputs.size(0) != targets.size(0))
    throw Error("[EpochBatches] expected one target per input, got inputs " + to_string(inputs) +
                " and targets " + to_string(targets));
  return examples;
}

}  // namespace

Examples Examples::rows(int64_t begin, int64_t end) const {
  if (begin < 0 || begin > end || end > size())
    throw Error("[Examples::rows] expected 0 <= begin <= end <= " + std::to_string(size()) +
                ", got " + std::to_string(begin) + " and " + std::to_string(end));
  return {slice(inputs, 0, begin, end), slice(targets, 0, begin, end), layout};
}

std::vector<int64_t> permutation(int64_t n, uint64_t seed, uint64_t stream) {
  if (n < 0) throw Error("[permutation] expected n >= 0, got " + std::to_string(n));
  std::vector<int64_t> order;
  try {
    order.resize(static_cast<size_t>(n));
  } catch (const std::exception&) {  // std::bad_alloc or std::length_error
    throw Error("[permutation] expected n numbers that fit into memory, got " + std::to_string(n));
  }
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[below(i, seed, i, stream)]);
  return order;
}

Tensor take_rows(const Tensor& from, std::span<const int64_t> rows) {
  if (from.dim() < 1 || !from.is_contiguous())
    throw Error("[take_rows] expected a contiguous tensor of rank 1 or more, got " +
                to_string(from));
  if (from.device().type != DeviceType::cpu)
    throw Error("[take_rows] expected a tensor of the host, got " + to_string(from) + " on " +
                to_string(from.device()));
  const int64_t n = from.size(0);
  for (const int64_t row : rows)
    if (row < 0 || row >= n)
      throw Error("[take_rows] expected rows below " + std::to_string(n) + ", got " +
                  std::to_string(row));
  Dims sizes = from.sizes();
  sizes[0] = static_cast<int64_t>(rows.size());
  const Tensor out = empty(sizes, from.dtype());
  const size_t row_bytes = n == 0 ? 0 : from.bytes() / static_cast<size_t>(n);
  if (row_bytes == 0) return out;
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* to = static_cast<std::byte*>(out.data());
  const int64_t grain = 1 + kGrainBytes / static_cast<int64_t>(row_bytes);
  parallel_for(sizes[0], grain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      std::memcpy(to + i * row_bytes, source + static_cast<size_t>(rows[i]) * row_bytes, row_bytes);
  });
  return out;
}

uint32_t fingerprint(const Examples& examples) {
  uint32_t sum = 0;
  for (const Tensor& t : {examples.inputs, examples.targets}) {
    const Tensor whole = contiguous(t);
    sum = io::crc32(to_string(whole), sum);
    const HostElements host(whole);
    sum = io::crc32({static_cast<const std::byte*>(host.data()), whole.bytes()}, sum);
  }
  return sum;
}

EpochBatches::EpochBatches(Examples examples, int64_t batch_size, uint64_t seed, int64_t epoch)
    : examples_(checked(std::move(examples), batch_size)),
      batch_size_(batch_size),
      order_(permutation(examples_.size(), seed, static_cast<uint64_t>(epoch))) {}

int64_t EpochBatches::count() const {
  return examples_.size() / batch_size_ + (examples_.size() % batch_size_ != 0 ? 1 : 0);
}

Examples EpochBatches::batch(int64_t i) const {
  if (i < 0 || i >= count())
    throw Error("[EpochBatches] expected a batch below " + std::to_string(count()) + ", got " +
                std::to_string(i));
  const auto begin = static_cast<size_t>(i * batch_size_);
  const auto rows = std::span(order_).subspan(begin).first(
      std::min(static_cast<size_t>(batch_size_), order_.size() - begin));
  return Examples{take_rows(examples_.inputs, rows), take_rows(examples_.targets, rows),
                  examples_.layout}
      .laid_out();
}

}  // namespace epilogue::train
