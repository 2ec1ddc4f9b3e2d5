// SPDX-License-Identifier: Apache-2.0
// Training on a device is training on the host: optimizers, clipping, loss scaling, autocast,
// compiled steps, checkpoints, profiles.
#include "backend/device/device_testing.h"
#include "epilogue/amp.h"
#include "epilogue/checkpoint.h"
#include "epilogue/compile_step.h"
#include "epilogue/data.h"
#include "epilogue/io.h"
#include "epilogue/nn.h"
#include "epilogue/optim.h"
#include "epilogue/profiler.h"
#include "io/files.h"
#include "support/test.h"

namespace epilogue::test::training_test {

using DeviceTraining = OnDevice;
using io_test::TempFolder;
using Values = std::vector<std::vector<double>>;

constexpr Device kHost{};
constexpr int64_t kFeatures = 20;
constexpr int64_t kClasses = 5;

using Optimizers = std::unique_ptr<optim::Optimizer> (*)(std::vector<Tensor>);
template <class O, class Options>
std::unique_ptr<optim::Optimizer> make(std::vector<Tensor> params, Options options) {
  return std::make_unique<O>(std::move(params), options);
}

struct Case {
  const char* name;
  Optimizers optimizer;
};
const Case kCases[] = {
    {"sgd",
     [](std::vector<Tensor> p) { return make<optim::SGD>(p, optim::SGDOptions{.lr = 0.1}); }},
    {"nesterov",
     [](std::vector<Tensor> p) {
       return make<optim::SGD>(
           p,
           optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
     }},
    {"adam",
     [](std::vector<Tensor> p) {
       return make<optim::Adam>(
           p, optim::AdamOptions{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true});
     }},
    {"adamw",
     [](std::vector<Tensor> p) {
       return make<optim::AdamW>(p, optim::AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
     }},
};

// A classifier with a norm, its optimizer and a batch, on one device; everywhere the same numbers.
struct Training {
  Device device;
  nn::MlpConfig config;
  std::shared_ptr<nn::Module> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  amp::GradScaler scaler;
  Tensor x;
  Tensor target;

  Training(Device where, Optimizers make_optimizer,
           amp::GradScalerOptions scaling = {.enabled = false})
      : device(where), scaler(scaling) {
    manual_seed(7);
    config.dim = kFeatures;
    config.hidden = 24;
    config.norm = nn::Norm::layer;
    config.residual = true;
    model = nn::make_mlp(config);
    const NoGrad no_grad;
    x = randn({9, kFeatures}).to(where);
    target = from_values({0, 1, 2, 3, 4, 0, 1, 2, -100}, {9}, DType::i64).to(where);
    model->to(where);
    optimizer = make_optimizer(model->parameters());
  }

  Tensor loss() const { return cross_entropy(slice((*model)(x), -1, 0, kClasses), target); }
  bool step() {
    optimizer->zero_grad();
    scaler.scale(loss()).backward();
    const bool stepped = scaler.step(*optimizer);
    scaler.update();
    return stepped;
  }
  Values parameters() const {
    Values values;
    for (const Tensor& p : model->parameters()) values.push_back(p.to_vector());
    return values;
  }
};

void expect_close(const Values& got, const Values& want, double tolerance = 2e-5) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t t = 0; t < want.size(); ++t) {
    ASSERT_EQ(got[t].size(), want[t].size());
    for (size_t i = 0; i < want[t].size(); ++i)
      EXPECT_NEAR(got[t][i], want[t][i], tolerance) << "tensor " << t << ", element " << i;
  }
}

TEST_F(DeviceTraining, OptimizersStepAsOnTheHost) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Training host(kHost, c.optimizer);
    Training device(kCuda, c.optimizer);
    const Values before = device.parameters();
    for (int i = 0; i < 3; ++i) {
      host.step();
      device.step();
    }
    EXPECT_NE(device.parameters(), before);
    expect_close(device.parameters(), host.parameters());
    for (const Tensor& p : device.model->parameters()) EXPECT_EQ(p.device(), kCuda);
  }
}

TEST_F(DeviceTraining, ClippingIsTheHosts) {
  const auto gradients = [](Device device, auto&& clip) {
    const Training run(device, kCases[0].optimizer);
    run.loss().backward();
    const double norm = clip(run.model->parameters());
    Values values = {{norm}};
    for (const Tensor& p : run.model->parameters()) values.push_back(p.grad().to_vector());
    return values;
  };
  const std::function<double(const std::vector<Tensor>&)> clips[] = {
      [](const auto& p) { return optim::clip_grad_norm_(p, 0.1); },
      [](const auto& p) { return optim::clip_grad_norm_(p, 0.1, 1); },
      [](const auto& p) { return optim::clip_grad_norm_(p, 0.01, HUGE_VAL); },
      [](const auto& p) {
        optim::clip_grad_value_(p, 0.003);
        return 0.0;
      }};
  for (const auto& clip : clips) expect_close(gradients(kCuda, clip), gradients(kHost, clip));
}

TEST_F(DeviceTraining, AScaledStepIsTheUnscaledOne) {
  Training plain(kCuda, kCases[3].optimizer);
  Training scaled(kCuda, kCases[3].optimizer, {.init_scale = 1024});
  plain.step();
  EXPECT_TRUE(scaled.step());
  EXPECT_NEAR(scaled.model->parameters()[0].grad().to_vector()[0],
              1024 * plain.model->parameters()[0].grad().to_vector()[0], 1e-3);
  expect_close(scaled.parameters(), plain.parameters());
}

TEST_F(DeviceTraining, UnscaledGradientsCanBeClipped) {
  Training run(kCuda, kCases[0].optimizer, {.init_scale = 4096});
  run.loss().backward();
  const double norm = optim::grad_norm(run.model->parameters());
  run.optimizer->zero_grad();
  run.scaler.scale(run.loss()).backward();
  run.scaler.unscale_(*run.optimizer);
  EXPECT_NEAR(optim::grad_norm(run.model->parameters()), norm, 1e-5 * norm);
}

// f32's largest number times the scale: infinite gradients, a skipped step, half the scale.
TEST_F(DeviceTraining, AnOverflowSkipsTheStepAndHalvesTheScale) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Training run(kCuda, c.optimizer, {.init_scale = 0x1p127, .growth_interval = 1});
    run.x = mul(run.x, 1e6);
    const Values before = run.parameters();
    run.optimizer->zero_grad();
    run.scaler.scale(mul(run.loss(), 1e6)).backward();
    EXPECT_FALSE(run.scaler.step(*run.optimizer));
    run.scaler.update();
    EXPECT_EQ(run.scaler.get_scale(), 0x1p126);
    EXPECT_EQ(run.parameters(), before);
    for (const auto& [name, tensor] : run.optimizer->state_dict().tensors)
      for (const double v : tensor.to_vector()) EXPECT_EQ(v, 0) << name;
  }
}

TEST_F(DeviceTraining, AutocastComputesInSixteenBits) {
  for (const auto& [wanted, expected] :
       {std::pair<std::optional<DType>, DType>{{}, DType::f16}, {DType::bf16, DType::bf16}}) {
    Training run(kCuda, kCases[3].optimizer);
    run.optimizer->keep_low_precision_copies(expected);
    Tensor y;
    Tensor loss;
    {
      const amp::Autocast autocast({.device = DeviceType::cuda, .dtype = wanted});
      y = mm(run.x, transpose(run.x, 0, 1));
      loss = run.loss();
    }
    EXPECT_EQ(y.dtype(), expected);
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_NEAR(loss.item(), run.loss().item(), 0.05);
    loss.backward();
    run.optimizer->step();
    for (const Tensor& p : run.model->parameters()) {
      EXPECT_EQ(p.grad().dtype(), DType::f32);
      const Tensor copy = run.optimizer->low_precision_copy(p);
      EXPECT_EQ(copy.to_vector(), to(p.detach(), expected).to_vector());
    }
  }
}

// Of the host and of a device: autocast of one leaves the other alone.
TEST_F(DeviceTraining, AutocastIsOfOneDevice) {
  const amp::Autocast autocast({.device = DeviceType::cpu});
  EXPECT_EQ(mm(ones({2, 2}), ones({2, 2})).dtype(), DType::bf16);
  const Tensor there = ones({2, 2}, DType::f32, kCuda);
  EXPECT_EQ(mm(there, there).dtype(), DType::f32);
}

TEST_F(DeviceTraining, ACompiledStepGivesEagersGradients) {
  for (const nn::Activation activation :
       {nn::Activation::geglu, nn::Activation::swiglu, nn::Activation::relu})
    for (const nn::Norm norm : {nn::Norm::none, nn::Norm::rms, nn::Norm::layer}) {
      manual_seed(3);
      nn::MlpConfig config = {.dim = 16, .hidden = 40, .activation = activation, .norm = norm};
      const auto model = nn::make_mlp(config);
      model->to(kCuda);
      const Tensor x = randn({6, 16}).to(kCuda);
      const Tensor target = randn({6, 16}).to(kCuda);
      const auto gradients = [&](auto&& run) {
        run();
        Values values;
        for (const Tensor& p : model->parameters()) values.push_back(p.grad().to_vector());
        model->zero_grad();
        return values;
      };
      const Values eager = gradients([&] { mse_loss((*model)(x), target).backward(); });
      CompiledStep step =
          compile_step(*model, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); });
      expect_close(gradients([&] { step(x, target); }), eager);
      Compiled compiled =
          compile([&](std::span<const Tensor> in) { return std::vector<Tensor>{(*model)(in[0])}; });
      expect_close(gradients([&] { mse_loss(compiled(x), target).backward(); }), eager);
    }
}

TEST_F(DeviceTraining, CompiledDropoutDrawsEagersMasks) {
  nn::Sequential model;
  model.emplace<nn::GatedMLP>(16, 40);
  model.emplace<nn::Dropout>(0.25);
  model.to(kCuda);
  const Tensor x = randn({6, 16}).to(kCuda);
  const Tensor target = randn({6, 16}).to(kCuda);
  const auto gradients = [&](auto&& run) {
    manual_seed(9);
    Values values;
    for (int call = 0; call < 2; ++call) {
      run();
      for (const Tensor& p : model.parameters()) values.push_back(p.grad().to_vector());
      model.zero_grad();
    }
    return values;
  };
  const Values eager = gradients([&] { mse_loss(model(x), target).backward(); });
  EXPECT_NE(eager[0], eager[3]) << "draws anew";
  CompiledStep step =
      compile_step(model, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); });
  expect_close(gradients([&] { step(x, target); }), eager);
  EXPECT_HAS(step.explain(), "programs on cuda:0 read no masks");
}

// Programs there read no bytes: such an op stays an op.
TEST_F(DeviceTraining, ACompiledFunctionWithAMaskOfBytesGivesEagersResult) {
  const NoGrad no_grad;
  manual_seed(4);
  const Tensor x = randn({5, 8}).to(kCuda);
  const Tensor mask = from_values({1, 0, 1, 1, 0, 0, 1, 1}, {8}, DType::u8).to(kCuda);
  const auto function = [mask](std::span<const Tensor> in) {
    return std::vector<Tensor>{mul(relu(in[0]), mask)};
  };
  Compiled compiled(function);
  EXPECT_EQ(compiled(x).to_vector(), function(std::array{x})[0].to_vector());
  EXPECT_EQ(compiled.stats().kernels, 2) << compiled.explain();
}

TEST_F(DeviceTraining, ACheckpointGoesOnOnEitherDevice) {
  const TempFolder folder;
  Training run(kCuda, kCases[3].optimizer, {.init_scale = 256});
  run.step();
  const train::Run whole = {*run.model, *run.optimizer, nullptr, &run.scaler};
  ASSERT_TRUE(train::write_checkpoint(folder / "c.safetensors", train::run_state(whole)).ok());
  run.step();
  for (const Device device : {kCuda, kHost}) {
    Training other(device, kCases[3].optimizer, {.init_scale = 1});
    const train::Run into = {*other.model, *other.optimizer, nullptr, &other.scaler};
    train::load_run_state(into, train::read_checkpoint(folder / "c.safetensors").value());
    EXPECT_EQ(other.scaler.get_scale(), 256);
    other.step();
    expect_close(other.parameters(), run.parameters());
    for (const auto& [name, tensor] : other.optimizer->state_dict().tensors)
      EXPECT_EQ(tensor.device(), device) << name;
  }
}

TEST_F(DeviceTraining, FilesOfDeviceTensorsAreThoseOfTheHosts) {
  const TempFolder folder;
  const Tensor host = from_values({1, 2, 3, 4, 5, 6}, {2, 3}, DType::bf16);
  const Tensor device = on_device(host);
  ASSERT_TRUE(save_safetensors(folder / "h", {{"a", host}, {"b", transpose(host, 0, 1)}}).ok());
  ASSERT_TRUE(save_safetensors(folder / "d",
                               {
                                   {"a", device},
                                   {"b", transpose(device, 0, 1)},
                               })
                  .ok());
  EXPECT_EQ(io_test::read_bytes(folder / "d"), io_test::read_bytes(folder / "h"));
}

TEST_F(DeviceTraining, BatchesAreTakenOnTheHost) {
  const std::vector<int64_t> rows = {0};
  try {
    train::take_rows(ones({2, 2}, DType::f32, kCuda), rows);
    FAIL() << "rows of a device were taken";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[take_rows] expected a tensor of the host, got f32[2, 2] on cuda:0");
  }
}

// Shapes, bytes and FLOPs of a step are worked out without reading what lies on the device.
TEST_F(DeviceTraining, AStepCanBeProfiled) {
  Training run(kCuda, kCases[3].optimizer, {.init_scale = 16});
  run.step();
  profiler::Profile profile({.record_shapes = true, .profile_memory = true, .with_flops = true});
  profile.start();
  run.step();
  profile.stop();
  const std::vector<trace::Row> rows = profile.key_averages().rows;
  const auto counts = [&](std::string_view name) {
    int64_t n = 0;
    for (const trace::Row& row : rows)
      n += row.key == name && row.device == trace::RowDevice::cpu ? row.count : 0;
    return n;
  };
  EXPECT_EQ(counts("aten::_fused_adamw_"), 1);
  EXPECT_EQ(counts("aten::_amp_foreach_non_finite_check_and_unscale_"), 1);
}

}  // namespace epilogue::test::training_test
