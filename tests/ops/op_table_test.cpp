// SPDX-License-Identifier: Apache-2.0
// Every op of the index: description, shape rule, kernels against the reference on every ISA level,
// gradients against finite differences, FLOPs and bytes, integer dtypes.
#include "base/cpu_features.h"
#include "core/backend.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::op_table_test {

constexpr DType kFloating[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
constexpr DType kIntegers[] = {DType::i64, DType::u8, DType::boolean};

bool is_one_of(const OpDef& op, std::initializer_list<const OpDef*> ops) {
  return std::find(ops.begin(), ops.end(), &op) != ops.end();
}

// Ops whose meaning depends on how the input lies in memory.
bool needs_contiguous_samples(const OpDef& op) {
  return is_one_of(op, {&kAsStrided, &kView, &kUnsafeView});
}

// Comparisons give booleans, which have no gradient.
bool gives_booleans(const OpDef& op) {
  return std::ranges::any_of(kPointwiseTable, [&](const PointwiseRow& row) {
    return row.op == op.name && row.result == PointwiseResult::truth;
  });
}

// Ops without a gradient rule: the walk stops there with an error.
bool may_lack_gradient(const OpDef& op) {
  return op.kind == OpKind::inplace || gives_booleans(op) ||
         is_one_of(op, {&kArgmax, &kArgmin, &kForeachNorm, &kAsStrided, &kNativeLayerNormBackward,
                        &kFusedRmsNormBackward});
}
bool has_second_gradient(const OpDef& op) {
  return !is_one_of(op, {&kLayerNorm, &kNativeLayerNorm, &kRmsNorm, &kFusedRmsNorm});
}

std::string sample_text(const OpDef& op, const Sample& sample, DType dtype) {
  const std::vector<Tensor> in = make_inputs(sample, dtype, Layout::contiguous);
  return std::string(op.name) + " " + describe(in, sample.attrs);
}

// Floating inputs that are constants of the op: class weights and their total.
bool is_constant_input(const OpDef& op, size_t input) {
  // The statistics of kCrossEntropyBackward belong to its logits: its second derivative is
  // kCrossEntropyForward's.
  return (is_one_of(op, {&kNllLoss, &kNllLossForward, &kCrossEntropyLoss, &kCrossEntropyForward}) &&
          input >= 2) ||
         (is_one_of(op, {&kNllLossBackward}) && input >= 3) ||
         (is_one_of(op, {&kCrossEntropyBackward}) && input >= 1);
}

// Runs body(inputs, attrs, text) for every sample, floating dtype and layout.
template <class Body>
void for_each_input(const OpDef& op, Body&& body) {
  for (const Sample& sample : op.samples()) {
    for (const DType dtype : kFloating) {
      for (const Layout layout : kLayouts) {
        if (layout != Layout::contiguous && needs_contiguous_samples(op)) continue;
        const std::vector<Tensor> in = make_inputs(sample, dtype, layout);
        const std::string text =
            sample_text(op, sample, dtype) + " layout " + std::to_string(static_cast<int>(layout));
        body(in, sample.attrs, text);
      }
    }
  }
}

// run_op on copies: in-place ops must not change the inputs for the next run.
std::vector<Tensor> run_on_copies(const OpDef& op, std::span<const Tensor> in,
                                  std::span<const Attr> attrs) {
  const std::vector<Tensor> inputs = with_copies_to_write(op, in);
  manual_seed(kSeed);
  const Outputs out = run_op(op, inputs, attrs);
  if (op.kind == OpKind::inplace) return written_inputs(op, inputs);
  return {out.span().begin(), out.span().end()};
}

// A composite may leave its reference out: its parts have theirs.
void expect_reference(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                      std::span<const Tensor> out, const std::string& text) {
  if (op.reference == nullptr) return;
  const std::vector<Tensor> expected = reference_results(op, in, attrs, out);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(difference(out[i], expected[i], tolerance_for(op, in, expected[i])), "")
        << text << " result " << i;
}

class OpTable : public ::testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op = *GetParam();
};

TEST_P(OpTable, IsDescribed) {
  EXPECT_TRUE(op.name.starts_with("aten::"));
  EXPECT_EQ(std::count_if(kOps.begin(), kOps.end(),
                          [&](const OpDef* other) { return other->name == op.name; }),
            1);
  EXPECT_TRUE(op.schema.starts_with("(") && op.schema.ends_with(")")) << op.schema;
  EXPECT_GT(op.doc.size(), 3U);
  EXPECT_EQ(op.doc.find('\n'), std::string_view::npos);
  ASSERT_NE(op.samples, nullptr);
  EXPECT_FALSE(op.samples().empty());
  const bool is_composed = op.kind == OpKind::view || op.kind == OpKind::composite;
  EXPECT_TRUE(op.reference != nullptr || op.kind == OpKind::composite);
  EXPECT_EQ(op.compose != nullptr, is_composed);
  EXPECT_EQ(op.infer != nullptr, !is_composed);
  EXPECT_TRUE(op.vjp != nullptr || op.kind == OpKind::composite || may_lack_gradient(op));
}

// The result of run_op (whichever kernel it takes, or the parts of a composite) is the reference's.
TEST_P(OpTable, RunEqualsReference) {
  for_each_input(
      op, [&](std::span<const Tensor> in, std::span<const Attr> attrs, const std::string& text) {
        expect_reference(op, in, attrs, run_on_copies(op, in, attrs), text);
      });
}

// Every kernel of the list that accepts the call, not only the one that run_op would take.
void check_kernels(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                   const std::string& text) {
  if (cpu_backend().kernels(op).empty()) return;
  const std::vector<Tensor> like = run_on_copies(op, in, attrs);
  if (std::all_of(like.begin(), like.end(), [](const Tensor& t) { return t.numel() == 0; })) return;
  const std::vector<Tensor> expected = reference_results(op, in, attrs, like);
  for (const Kernel& kernel : cpu_backend().kernels(op)) {
    const std::vector<Tensor> inputs = with_copies_to_write(op, in);
    std::vector<Tensor> out = op.kind == OpKind::inplace
                                  ? std::vector<Tensor>{inputs[0]}
                                  : results_like(like, std::numeric_limits<double>::quiet_NaN());
    const Call call{op, inputs, attrs, out};
    if (kernel.decline(call) != nullptr) continue;
    manual_seed(kSeed);
    kernel.run(call);
    const std::vector<Tensor> results =
        op.kind == OpKind::inplace ? written_inputs(op, inputs) : out;
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(difference(results[i], expected[i], tolerance_for(op, in, expected[i])), "")
          << text << " kernel " << kernel.name << " result " << i;
    KernelInfo info;
    kernel.describe(call, info);
    EXPECT_FALSE(info.name.view().empty());
    EXPECT_GE(info.threads, 1);
    const bool has_empty = std::any_of(in.begin(), in.end(), [](const Tensor& t) {
      return t.defined() && t.numel() == 0;  // a product over k = 0 has no depth
    });
    for (size_t d = 0; d < 3; ++d)
      EXPECT_GE(std::min(info.grid[d], info.block[d]), has_empty ? 0 : 1)
          << text << info.name.view();
  }
}

TEST_P(OpTable, KernelsEqualReferenceOnEveryIsa) {
  const IsaScope restore;
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    for_each_input(
        op, [&](std::span<const Tensor> in, std::span<const Attr> attrs, const std::string& text) {
          check_kernels(op, in, attrs, std::string(isa_name(isa)) + " " + text);
        });
  }
}

// Capture of an in-place op: it reads nothing of what it writes, or another op gives the
// same as a new tensor.
TEST_P(OpTable, InPlaceOpsAreWhatTheySayToCapture) {
  if (op.kind != OpKind::inplace) {
    EXPECT_FALSE(op.overwrites);
    EXPECT_EQ(op.functional, nullptr);
    return;
  }
  if (op.overwrites == (op.functional != nullptr)) {
    EXPECT_FALSE(op.overwrites) << "one or the other";
    return;
  }
  for_each_input(
      op, [&](std::span<const Tensor> in, std::span<const Attr> attrs, const std::string& text) {
        const Tensor want = run_on_copies(op, in, attrs)[0];
        std::vector<Tensor> inputs(in.begin(), in.end());
        if (op.overwrites) {
          inputs[0] = results_like(in.first(1), std::numeric_limits<double>::quiet_NaN())[0];
          EXPECT_EQ(difference(run_on_copies(op, inputs, attrs)[0], want, {}), "") << text;
        } else {
          EXPECT_EQ(difference(run_on_copies(*op.functional, in, attrs)[0], want, {}), "") << text;
        }
      });
}

// Inputs for finite differences: f64, those that the sample leaves open require a gradient.
std::vector<Tensor> gradient_inputs(const OpDef& op, const Sample& sample) {
  std::vector<Tensor> in = make_inputs(sample, DType::f64, Layout::contiguous);
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i].defined() && in[i].dtype() == DType::f64 && !sample.in[i].dtype &&
        !is_constant_input(op, i))
      in[i].set_requires_grad(true);
  return in;
}
int64_t element_total(std::span<const Tensor> in) {
  int64_t n = 0;
  for (const Tensor& t : in) n += t.defined() ? t.numel() : 0;
  return n;
}

Tensor first_result(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs) {
  manual_seed(kSeed);
  return run_op(op, in, attrs)[0];
}

TEST_P(OpTable, GradientEqualsFiniteDifferences) {
  if (may_lack_gradient(op)) return;
  int checked = 0;
  for (const Sample& sample : op.samples()) {
    const std::vector<Tensor> in = gradient_inputs(op, sample);
    if (element_total(in) > 600) continue;
    const Tensor out = first_result(op, in, sample.attrs);
    if (out.dtype() != DType::f64 || !out.requires_grad()) continue;
    const GradcheckResult result = gradcheck(
        [&](std::span<const Tensor> x) {
          return std::vector<Tensor>{first_result(op, x, sample.attrs)};
        },
        in);
    EXPECT_TRUE(result.ok) << sample_text(op, sample, DType::f64) << ": " << result.message;
    ++checked;
  }
  EXPECT_GT(checked, 0) << "no sample is small and floating";
}

// The gradient as a function of the inputs, differentiated again.
std::vector<Tensor> gradients_of(const OpDef& op, std::span<const Tensor> in,
                                 std::span<const Attr> attrs) {
  const GradMode recording(true);
  std::vector<Tensor> wanted;
  for (const Tensor& t : in)
    if (t.defined() && t.requires_grad()) wanted.push_back(t);
  const Tensor out = first_result(op, in, attrs);
  // A weight that varies: a constant one is in the null space of softmax's gradient.
  const Tensor weight = uniform(out.sizes(), 0.5, 1.5, DType::f64);
  std::vector<Tensor> result;
  for (const Tensor& g : grad({&out, 1}, wanted, {&weight, 1}, {.create_graph = true}))
    if (g.defined() && g.requires_grad()) result.push_back(g);
  return result;
}

TEST_P(OpTable, SecondGradientEqualsFiniteDifferences) {
  if (may_lack_gradient(op)) return;
  for (const Sample& sample : op.samples()) {
    const std::vector<Tensor> in = gradient_inputs(op, sample);
    if (element_total(in) > 60) continue;
    const Tensor out = first_result(op, in, sample.attrs);
    if (out.dtype() != DType::f64 || !out.requires_grad() || out.numel() == 0) continue;
    if (gradients_of(op, in, sample.attrs).empty()) continue;  // linear
    auto f = [&](std::span<const Tensor> x) { return gradients_of(op, x, sample.attrs); };
    if (!has_second_gradient(op)) {
      EXPECT_THROW(gradcheck(f, in), Error) << "a missing second derivative must not be silent";
      continue;
    }
    const GradcheckResult result = gradcheck(f, in);
    EXPECT_TRUE(result.ok) << sample_text(op, sample, DType::f64) << ": " << result.message;
  }
}

TEST_P(OpTable, WorkIsCounted) {
  if (op.kind == OpKind::view || op.kind == OpKind::composite) return;  // the parts count theirs
  for (const Sample& sample : op.samples()) {
    const std::vector<Tensor> in = make_inputs(sample, DType::f32, Layout::contiguous);
    std::vector<Tensor> out = run_on_copies(op, in, sample.attrs);
    const Call call{op, in, sample.attrs, out};
    const double flops = op.flops != nullptr ? op.flops(call) : 0;
    const double bytes = op.bytes != nullptr ? op.bytes(call) : moved_bytes(call);
    EXPECT_TRUE(std::isfinite(flops) && flops >= 0) << flops;
    EXPECT_TRUE(std::isfinite(bytes) && bytes >= 0) << bytes;
    if (out[0].numel() == 0) continue;
    EXPECT_GT(bytes, 0) << sample_text(op, sample, DType::f32);
    if (op.pointwise && !is_one_of(op, {&kToCopy, &kClone, &kCopy_, &kFill_, &kZero_})) {
      EXPECT_GE(flops, static_cast<double>(out[0].numel()));
    }
  }
}

// Integers and booleans: the reference's values, or a clear Error; never a crash.
TEST_P(OpTable, IntegersWorkOrFailClearly) {
  for (const Sample& sample : op.samples()) {
    for (const DType dtype : kIntegers) {
      const std::vector<Tensor> in = make_inputs(sample, dtype, Layout::contiguous);
      const std::string text = sample_text(op, sample, dtype);
      std::vector<Tensor> out;
      try {
        out = run_on_copies(op, in, sample.attrs);
      } catch (const Error& e) {
        EXPECT_TRUE(std::string_view(e.what()).starts_with("[aten::")) << e.what();
        EXPECT_HAS(std::string_view(e.what()), "expected") << e.what();
        continue;
      }
      expect_reference(op, in, sample.attrs, out, text);
    }
  }
}

// Inputs without elements never crash, whatever the sample's shape was.
TEST_P(OpTable, EmptyInputsWorkOrFailClearly) {
  for (Sample sample : op.samples()) {
    for (SampleInput& s : sample.in)
      if (!s.sizes.empty()) s.sizes[0] = 0;
    const std::vector<Tensor> in = make_inputs(sample, DType::f32, Layout::contiguous);
    try {
      const std::vector<Tensor> out = run_on_copies(op, in, sample.attrs);
      expect_reference(op, in, sample.attrs, out, sample_text(op, sample, DType::f32));
    } catch (const Error& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with("[aten::")) << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTable, ::testing::ValuesIn(kOps), op_test_name);

TEST(OpFlops, MatrixProductsCount2MNK) {
  const Attr one = 1.0;
  const Tensor a = ones({3, 5});
  const Tensor b = ones({5, 7});
  const Tensor bias = ones({7});
  std::vector<Tensor> out = {ones({3, 7})};
  const Tensor mm_in[] = {a, b};
  EXPECT_EQ(kMm.flops(Call{kMm, mm_in, {}, out}), 2 * 3 * 7 * 5);
  const Tensor addmm_in[] = {bias, a, b};
  const Attr attrs[] = {one, one};
  EXPECT_EQ(kAddmm.flops(Call{kAddmm, addmm_in, attrs, out}), 2 * 3 * 7 * 5);
  const Tensor bmm_in[] = {ones({4, 3, 5}), ones({4, 5, 7})};
  std::vector<Tensor> bmm_out = {ones({4, 3, 7})};
  EXPECT_EQ(kBmm.flops(Call{kBmm, bmm_in, {}, bmm_out}), 2 * 4 * 3 * 7 * 5);
}

}  // namespace epilogue::test::op_table_test
