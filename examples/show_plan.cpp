// The graph of a module, the plan that compile() makes of it, and why: print them for your own
// module while you work on a pass or a pattern.
#include <cmath>
#include <cstdio>

#include "epilogue/epilogue.h"

using namespace epilogue;

namespace {

class SelfAttention : public nn::Module {
 public:
  SelfAttention(int64_t dim, int64_t heads)
      : nn::Module("SelfAttention"), heads_(heads), qkv_(dim, 3 * dim), out_(dim, dim) {
    register_module("qkv", qkv_);
    register_module("out", out_);
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor qkv = qkv_.forward(x);
    const Tensor scores = matmul(head(qkv, 0), transpose(head(qkv, 1), -2, -1));
    const double scale = 1 / std::sqrt(static_cast<double>(x.size(2) / heads_));
    const Tensor y = matmul(softmax(scores * scale, -1), head(qkv, 2));
    return out_.forward(reshape(transpose(y, 1, 2), x.sizes()));
  }

 private:
  // q, k or v as [batch, heads, n, dim / heads].
  Tensor head(const Tensor& qkv, int64_t which) const {
    const int64_t dim = qkv.size(2) / 3;
    const Tensor part = slice(qkv, 2, which * dim, (which + 1) * dim);
    return transpose(reshape(part, {qkv.size(0), qkv.size(1), heads_, dim / heads_}), 1, 2);
  }

  int64_t heads_;
  nn::Linear qkv_;
  nn::Linear out_;
};

}  // namespace

int main() {
  const NoGrad inference;
  const SelfAttention module(64, 4);
  const Compiled compiled = compile(module);
  compiled(randn({2, 128, 64}));
  std::printf("graph:\n%s\n", compiled.dump(CompiledDump::graph).c_str());
  std::printf("plan:\n%s\n", compiled.dump(CompiledDump::plan).c_str());
  std::printf("%s", compiled.explain().c_str());
  return compiled.stats().kernels == 3 ? 0 : 1;  // qkv, attention, out
}
