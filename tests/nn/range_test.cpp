// SPDX-License-Identifier: Apache-2.0
// Modules announce themselves to the run observer, nested and numbered per class.
#include "core/observer.h"
#include "nn/reference.h"
#include "support/test.h"

namespace epilogue::nn::range_test {

// Writes "name(" and ")" for module ranges and the op's name for top-level ops.
class Listener : public RunObserver {
 public:
  Listener() { set_run_observer(this); }
  ~Listener() override { set_run_observer(nullptr); }
  void op_begin(const OpDef& op, std::span<const Tensor>, std::span<const Attr>, int64_t) override {
    if (op_depth_++ == 0) heard += std::string(op.name) + " ";
  }
  void op_end() override { --op_depth_; }
  void kernel_ran(const KernelRun&) override {}
  void range_begin(std::string_view name, RangeKind kind, int64_t, uint64_t) override {
    EXPECT_EQ(kind, RangeKind::module);
    names.emplace_back(name);
    heard += std::string(name.substr(0, name.rfind('_'))) + "( ";
  }
  void range_end() override { heard += ") "; }

  std::string heard;
  std::vector<std::string> names;

 private:
  int op_depth_ = 0;
};

TEST(ModuleRange, WrapsTheOpsOfEachLayer) {
  const GatedMLP mlp(2, 3);
  const Tensor x = ones({1, 2});
  Listener listener;
  (void)mlp(x);
  EXPECT_EQ(listener.heard,
            "nn.Module: GatedMLP( "
            "nn.Module: Linear( aten::linear ) aten::gelu "
            "nn.Module: Linear( aten::linear ) aten::mul "
            "nn.Module: Linear( aten::linear ) ) ");
}

TEST(ModuleRange, InstancesAreNumberedPerClass) {
  struct Counted : Module {
    Counted() : Module("Counted") {}
    Tensor forward(const Tensor& x) const override { return x; }
  };
  const Counted first, second;
  const Tensor x = ones({1});
  Listener listener;
  (void)second(x);
  (void)first(x);
  EXPECT_EQ(listener.names,
            (std::vector<std::string>{"nn.Module: Counted_1", "nn.Module: Counted_0"}));
}

TEST(ModuleRange, ClosesWhenForwardThrows) {
  const Linear layer(2, 2);
  const Tensor x = ones({1, 3});
  Listener listener;
  EXPECT_THROW((void)layer(x), Error);
  EXPECT_TRUE(listener.heard.ends_with(") ")) << listener.heard;
}

TEST(ModuleRange, ForwardAloneIsSilent) {
  const ReLU layer;
  const Tensor x = ones({1});
  Listener listener;
  (void)layer.forward(x);
  EXPECT_TRUE(listener.names.empty());
}

}  // namespace epilogue::nn::range_test
