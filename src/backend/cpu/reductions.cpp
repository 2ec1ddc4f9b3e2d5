// SPDX-License-Identifier: Apache-2.0
// CPU kernels of sum and mean over any dimensions of any strides.
//
// The dimension with the smallest stride is the fast one. Where it is summed, memory is read in
// segments of it and each adds one number to its result ("rows"). Where it is kept, segments are
// added to a tile of results ("columns"). Groups of segments are summed apart and combined in
// order: results depend on the shape alone, not on the number of threads, and rounding errors grow
// slowly with the length.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/reduce.h"
#include "core/element.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace epilogue::cpu {
namespace {

constexpr int64_t kColumns = 1024;   // results of one tile
constexpr int64_t kFlushRows = 128;  // segments added to a tile before it is added to the total
constexpr int64_t kMaxColumnGroups = 16;
constexpr int64_t kMaxRowGroups = 64;
constexpr int64_t kManyUnits = 16;  // enough independent results to keep threads busy

// out_stride 0: summed.
struct Dimension {
  int64_t size;
  int64_t stride;
  int64_t out_stride;
};

// Slowest first; a broadcast dimension (stride 0) rereads what the others read.
bool is_slower(const Dimension& a, const Dimension& b) {
  if ((a.stride == 0) != (b.stride == 0)) return a.stride == 0;
  return std::abs(a.stride) > std::abs(b.stride);
}

bool can_join(const Dimension& outer, const Dimension& inner) {
  return outer.stride == inner.size * inner.stride &&
         (outer.out_stride == 0) == (inner.out_stride == 0) &&
         outer.out_stride == inner.size * inner.out_stride;
}

struct Plan {
  Dimension fast{1, 1, 0};
  std::array<Dimension, kMaxRank> kept{};  // without the fast dimension, as `summed` is
  int kept_rank = 0;
  Axes summed;
  int64_t kept_count = 1;
  int64_t summed_count = 1;
  int64_t divisor = 1;  // mean: elements per result

  bool is_rows() const { return fast.out_stride == 0; }
  // Pieces of the fast dimension, and results (rows) or tiles of results (columns).
  int64_t pieces() const { return (fast.size + piece_size() - 1) / piece_size(); }
  int64_t piece_size() const { return is_rows() ? kRowPiece : kColumns; }
  int64_t units() const { return is_rows() ? kept_count : kept_count * pieces(); }
  // Segments that go into one unit, and how many groups they form.
  int64_t segments() const { return is_rows() ? summed_count * pieces() : summed_count; }
  int64_t groups() const {
    if (is_rows()) return std::min(segments(), kMaxRowGroups);
    return units() >= kManyUnits
               ? 1
               : std::clamp<int64_t>(segments() / kFlushRows, 1, kMaxColumnGroups);
  }
  int64_t group_begin(int64_t g) const { return segments() * g / std::max<int64_t>(1, groups()); }
  // Threads take units, or groups of few units.
  bool splits_groups() const { return units() < kManyUnits && groups() > 1; }
  int64_t items() const { return splits_groups() ? units() * groups() : units(); }
  int64_t grain() const {
    const int64_t elements = segments() * std::min(fast.size, piece_size());
    return grain_for(splits_groups() ? elements / groups() : elements);
  }
};

// Where a unit's first element lies in the input and in the result.
struct Offsets {
  int64_t in = 0;
  int64_t out = 0;
};
Offsets kept_offsets(const Plan& plan, int64_t i) {
  const Dimension& outer = plan.kept[0];
  if (plan.kept_rank == 1) return {i * outer.stride, i * outer.out_stride};
  Offsets o;
  for (int d = plan.kept_rank - 1; d >= 0; --d) {
    const Dimension& k = plan.kept[static_cast<size_t>(d)];
    o.in += i % k.size * k.stride;
    o.out += i % k.size * k.out_stride;
    i /= k.size;
  }
  return o;
}

Plan plan_of(const Call& call) {
  const Tensor& in = call.in[0];
  const Dims reduced = normalize_dims(call.op, call.attr<Dims>(0), in.dim());
  Plan plan;
  std::array<Dimension, kMaxRank> dims;
  size_t rank = 0;
  int64_t out_stride = 1;
  for (int d = in.dim() - 1; d >= 0; --d) {
    const bool sums = std::find(reduced.begin(), reduced.end(), d) != reduced.end();
    const int64_t size = in.sizes()[d];
    if (sums && &call.op == &kMean) plan.divisor *= size;
    if (size != 1) dims[rank++] = {size, in.strides()[d], sums ? 0 : out_stride};
    if (!sums) out_stride *= size;
  }
  std::reverse(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(rank));
  std::stable_sort(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(rank), is_slower);
  size_t joined = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (joined > 0 && can_join(dims[joined - 1], dims[i])) {
      dims[joined - 1] = {dims[joined - 1].size * dims[i].size, dims[i].stride, dims[i].out_stride};
    } else {
      dims[joined++] = dims[i];
    }
  }
  if (joined > 0) plan.fast = dims[--joined];
  for (size_t i = 0; i < joined; ++i) {
    if (dims[i].out_stride == 0) {
      plan.summed.push_back({dims[i].size, dims[i].stride});
    } else {
      plan.kept[static_cast<size_t>(plan.kept_rank++)] = dims[i];
      plan.kept_count *= dims[i].size;
    }
  }
  plan.summed_count = plan.summed.count();
  return plan;
}

const char* decline_reduction(const Call& call) {
  return has_float_type(call.in[0].dtype()) && has_float_type(call.out[0].dtype())
             ? nullptr
             : kNeedsFloatType;
}

const void* reduced_element(const Tensor& t, int64_t offset) {
  return static_cast<const std::byte*>(t.data()) +
         offset * static_cast<int64_t>(dtype_bytes(t.dtype()));
}

// Rows: the sum of one group of segments of the result whose input begins at `first`.
double row_group(const Plan& plan, const Tensor& in, int64_t first, int64_t group) {
  const auto sum = simd::row_kernels().sum;
  const simd::FloatType type = float_type(in.dtype());
  const int64_t pieces = plan.pieces();
  float* buffer = scratch(Slot::a, std::min(kRowPiece, plan.fast.size));
  double total = 0;
  for (int64_t s = plan.group_begin(group); s < plan.group_begin(group + 1); ++s) {
    const int64_t begin = s % pieces * kRowPiece;
    const int64_t n = std::min(kRowPiece, plan.fast.size - begin);
    const int64_t offset = first + plan.summed.offset(s / pieces) + begin * plan.fast.stride;
    total += sum(read_line(type, reduced_element(in, offset), plan.fast.stride, n, buffer),
                 static_cast<size_t>(n));
  }
  return total;
}

void run_rows(const Plan& plan, const Tensor& in, const Tensor& out) {
  const int64_t groups = plan.groups();
  const auto divisor = static_cast<double>(plan.divisor);
  auto finish = [&](int64_t offset, double total) {
    store_element(out.dtype(), out.data(), offset, total / divisor);
  };
  if (plan.segments() == 1) {
    const auto sum = simd::row_kernels().sum;
    const simd::FloatType type = float_type(in.dtype());
    const int64_t n = plan.fast.size;
    parallel_for(plan.units(), plan.grain(), [&](int64_t begin, int64_t end) {
      float* buffer = scratch(Slot::a, n);
      for (int64_t i = begin; i < end; ++i) {
        const Offsets o = kept_offsets(plan, i);
        const float* row = read_line(type, reduced_element(in, o.in), plan.fast.stride, n, buffer);
        finish(o.out, sum(row, static_cast<size_t>(n)));
      }
    });
    return;
  }
  if (!plan.splits_groups()) {
    parallel_for(plan.units(), plan.grain(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Offsets o = kept_offsets(plan, i);
        double total = 0;
        for (int64_t g = 0; g < groups; ++g) total += row_group(plan, in, o.in, g);
        finish(o.out, total);
      }
    });
    return;
  }
  std::array<double, kManyUnits * kMaxRowGroups> parts;
  parallel_for(plan.items(), plan.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parts[static_cast<size_t>(i)] =
          row_group(plan, in, kept_offsets(plan, i / groups).in, i % groups);
  });
  for (int64_t i = 0; i < plan.units(); ++i) {
    double total = 0;
    for (int64_t g = 0; g < groups; ++g) total += parts[static_cast<size_t>(i * groups + g)];
    finish(kept_offsets(plan, i).out, total);
  }
}

// Columns: one unit is tile `unit % pieces` of kept combination `unit / pieces`.
struct Tile {
  Offsets first;
  int64_t n;
};
Tile tile_of(const Plan& plan, int64_t unit) {
  const int64_t begin = unit % plan.pieces() * kColumns;
  Offsets o = kept_offsets(plan, unit / plan.pieces());
  o.in += begin * plan.fast.stride;
  o.out += begin * plan.fast.out_stride;
  return {o, std::min(kColumns, plan.fast.size - begin)};
}

// total[j] = sum of one group of segments. Two levels: a tile of at most kFlushRows segments, then
// the total.
void column_group(const Plan& plan, const Tensor& in, const Tile& tile, int64_t group,
                  float* total) {
  const auto accumulate = simd::row_kernels().accumulate;
  const simd::FloatType type = float_type(in.dtype());
  const auto n = static_cast<size_t>(tile.n);
  float* buffer = scratch(Slot::a, tile.n);
  float* partial = scratch(Slot::b, tile.n);
  std::fill_n(total, n, 0.0F);
  for (int64_t s = plan.group_begin(group); s < plan.group_begin(group + 1);) {
    const int64_t flush = std::min(s + kFlushRows, plan.group_begin(group + 1));
    std::fill_n(partial, n, 0.0F);
    for (; s < flush; ++s) {
      const void* segment = reduced_element(in, tile.first.in + plan.summed.offset(s));
      accumulate(read_line(type, segment, plan.fast.stride, tile.n, buffer), partial, n);
    }
    accumulate(partial, total, n);
  }
}

void finish_tile(const Plan& plan, const Tensor& out, const Tile& tile, float* total) {
  const auto divisor = static_cast<float>(plan.divisor);
  if (plan.divisor != 1)
    for (int64_t j = 0; j < tile.n; ++j) total[j] /= divisor;
  const size_t at = static_cast<size_t>(tile.first.out) * dtype_bytes(out.dtype());
  write_line(float_type(out.dtype()), total, static_cast<std::byte*>(out.data()) + at,
             plan.fast.out_stride, tile.n);
}

void run_columns(const Plan& plan, const Tensor& in, const Tensor& out) {
  const int64_t groups = plan.groups();
  if (!plan.splits_groups()) {
    parallel_for(plan.units(), plan.grain(), [&](int64_t begin, int64_t end) {
      float* total = scratch(Slot::c, kColumns);
      for (int64_t unit = begin; unit < end; ++unit) {
        const Tile tile = tile_of(plan, unit);
        column_group(plan, in, tile, 0, total);
        finish_tile(plan, out, tile, total);
      }
    });
    return;
  }
  const int64_t width = std::min(kColumns, plan.fast.size);
  float* parts = scratch(Slot::shared_a, plan.items() * width);
  parallel_for(plan.items(), plan.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      column_group(plan, in, tile_of(plan, i / groups), i % groups, parts + i * width);
  });
  for (int64_t unit = 0; unit < plan.units(); ++unit) {
    const Tile tile = tile_of(plan, unit);
    float* total = parts + unit * groups * width;
    for (int64_t g = 1; g < groups; ++g)
      simd::row_kernels().accumulate(total + g * width, total, static_cast<size_t>(tile.n));
    finish_tile(plan, out, tile, total);
  }
}

void run_reduction(const Call& call) {
  const Plan plan = plan_of(call);
  if (plan.is_rows()) {
    run_rows(plan, call.in[0], call.out[0]);
  } else {
    run_columns(plan, call.in[0], call.out[0]);
  }
}

void describe_reduction(const Call& call, KernelInfo& info) {
  const Plan plan = plan_of(call);
  std::string what = &call.op == &kMean ? "mean" : "sum";
  what += plan.is_rows() ? "_rows" : "_columns";
  if (plan.fast.stride != 1) what += "_strided";
  info.name = kernel_name(what, call.in[0].dtype());
  const bool splits = plan.splits_groups();
  const int64_t groups = splits ? plan.groups() : 1;
  info.grid = {std::max<int64_t>(1, plan.units()), groups, 1};
  info.block = {std::clamp<int64_t>(plan.fast.size, 1, plan.piece_size()),
                std::max<int64_t>(1, plan.segments() / groups), 1};
  info.threads = threads_for(plan.items(), plan.grain());
}

constexpr Kernel kReductionKernels[] = {
    {"reduce", decline_reduction, run_reduction, describe_reduction}};
constexpr KernelList kReductionLists[] = {{&kSum, kReductionKernels}, {&kMean, kReductionKernels}};

}  // namespace

std::span<const KernelList> reduction_lists() { return kReductionLists; }

}  // namespace epilogue::cpu
