// SPDX-License-Identifier: Apache-2.0
// Trained models as files: what is written reads back and predicts the same; what is refused.
#include "epilogue/predictor.h"

#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"
#include "train/network.h"

namespace epilogue::train::predictor_test {

using io_test::TempFolder;

constexpr double kNever = std::numeric_limits<double>::infinity();

ModelDescription table_model(Task task) {
  ModelDescription d;
  d.task = task;
  d.network = {.inputs = 3,
               .hidden = 8,
               .layers = 2,
               .outputs = task == Task::classification ? 3 : 1,
               .dropout = 0.1};
  d.table = TableMeaning{.task = task,
                         .target = "kind",
                         .classes = {},
                         .features = {{.name = "a", .mean = 1, .std = 2},
                                      {.name = "b", .mean = 2, .std = 0.5},
                                      {.name = "c", .mean = 3, .std = kNever}},
                         .target_mean = 100,
                         .target_std = 10};
  if (task == Task::classification) d.table->classes = {"fig", "pear", "plum, ripe"};
  d.delimiter = ';';
  return d;
}

class PredictorTest : public testing::Test {
 protected:
  // Writes a model with weights of its own.
  std::shared_ptr<nn::Module> save(const ModelDescription& d, const Metadata& more = {}) {
    auto network = make_network(d.network);
    network->eval();
    EXPECT_TRUE(save_model(path_, *network, d, more).ok());
    return network;
  }
  std::string failure() const {
    const auto model = Predictor::open(path_);
    return model ? "opened" : model.failure().message;
  }

  TempFolder folder_;
  std::string path_ = folder_.path() + "/model.safetensors";
};

TEST_F(PredictorTest, NetworksHaveTheWeightsThatAreCounted) {
  for (const Architecture a : {Architecture::mlp, Architecture::geglu})
    for (const int64_t hidden : {1, 7, 64})
      for (const int64_t layers : {1, 3}) {
        const NetworkOptions o{
            .architecture = a, .inputs = 5, .hidden = hidden, .layers = layers, .outputs = 4};
        EXPECT_EQ(num_parameters(o), static_cast<double>(make_network(o)->num_parameters()));
      }
  EXPECT_ERROR(
      make_network({.inputs = 1, .hidden = 0, .outputs = 1}),
      "[make_network] expected inputs, hidden, layers and outputs above 0, got 1, 0, 1, 1");
}

TEST_F(PredictorTest, ClassesOfATable) {
  const ModelDescription d = table_model(Task::classification);
  const auto network = save(d, {{"run", "{}"}});
  const Predictor model = Predictor::open(path_).value();
  EXPECT_EQ(model.description().delimiter, ';');
  EXPECT_EQ(model.description().class_names(), d.table->classes);
  EXPECT_EQ(model.description().network.dropout, 0.1);
  // Columns in another order, one that the model does not read, a missing value.
  const CsvTable rows = CsvTable::parse("c,other,b,a\n9,x,2.5,3\n1,y,NA,-1\n", "new.csv").value();
  const Tensor inputs = model.inputs_of(rows).value();
  EXPECT_EQ(inputs.to_vector(), (std::vector<double>{1, 1, 0, -1, 0, 0}));
  const Predictions p = model.predict(inputs);
  const NoGrad no_grad;
  const Tensor expected = softmax(network->forward(inputs), -1);
  EXPECT_EQ(p.probabilities.to_vector(), expected.to_vector());
  const std::vector<double> all = expected.to_vector();
  ASSERT_EQ(p.classes.size(), 2U);
  for (size_t r = 0; r < 2; ++r) {
    const auto row = all.begin() + static_cast<std::ptrdiff_t>(3 * r);
    EXPECT_EQ(p.classes[r], std::max_element(row, row + 3) - row);
  }
  EXPECT_TRUE(p.values.empty());
}

TEST_F(PredictorTest, NumbersAreInTheTargetsUnit) {
  const auto network = save(table_model(Task::regression));
  const Predictor model = Predictor::open(path_).value();
  const Tensor values = from_values({3.0, 2.5, 9.0, -1.0, 2.0, 0.0}, {2, 3});
  const Tensor inputs = model.inputs_of(values);
  EXPECT_EQ(inputs.to_vector(), (std::vector<double>{1, 1, 0, -1, 0, 0}));
  const Predictions p = model.predict(inputs);
  const NoGrad no_grad;
  const std::vector<double> out = network->forward(inputs).to_vector();
  EXPECT_EQ(p.values, (std::vector<double>{100 + 10 * out[0], 100 + 10 * out[1]}));
}

// More rows than run at once: the same as one by one.
TEST_F(PredictorTest, ManyRows) {
  save(table_model(Task::regression));
  const Predictor model = Predictor::open(path_).value();
  const Tensor inputs = randn({2500, 3});
  const std::vector<double> all = model.predict(inputs).values;
  ASSERT_EQ(all.size(), 2500U);
  for (const int64_t row : {0, 1023, 1024, 2499})
    EXPECT_NEAR(all[static_cast<size_t>(row)],
                model.predict(slice(inputs, 0, row, row + 1)).values[0], 1e-3);
  EXPECT_TRUE(model.predict(zeros({0, 3})).values.empty());
}

TEST_F(PredictorTest, ImagesAreScaled) {
  ModelDescription d;
  d.network = {
      .architecture = Architecture::geglu, .inputs = 2, .hidden = 4, .layers = 1, .outputs = 2};
  d.pixels = PixelMeaning{.mean = 0.25, .std = 0.5};
  save(d);
  const Predictor model = Predictor::open(path_).value();
  EXPECT_EQ(model.inputs_of(from_values({0.0, 255.0}, {1, 2})).to_vector(),
            (std::vector<double>{-0.5, 1.5}));
  EXPECT_EQ(model.description().class_names(), (std::vector<std::string>{"0", "1"}));
  const CsvTable table = CsvTable::parse("a\n1\n", "t.csv").value();
  EXPECT_EQ(model.inputs_of(table).failure().message,
            "t.csv: ModelInput: expected images or tensors, as the model " + path_ +
                " learned from, got a table");
}

TEST_F(PredictorTest, InputsThatDoNotFit) {
  save(table_model(Task::classification));
  const Predictor model = Predictor::open(path_).value();
  EXPECT_ERROR(model.predict(zeros({4, 2})),
               "[Predictor] expected inputs f32 [n, 3], got f32[4, 2]");
  EXPECT_ERROR(model.inputs_of(zeros({4, 3}, DType::bf16)),
               "[Predictor] expected values f32 [n, 3], got bf16[4, 3]");
  const auto failure_of = [&](const char* text) {
    return model.inputs_of(CsvTable::parse(text, "t.csv").value()).failure().message;
  };
  EXPECT_EQ(failure_of("a,c\n1,2\n"),
            "t.csv: TableColumn: expected the column 'b', which the model reads, got none of that "
            "name");
  EXPECT_EQ(failure_of("a,b,c\n1,x,2\n"),
            "t.csv: CsvNumber: line 2, column 'b': expected a finite number, got 'x'");
}

ModelDescription text_model() {
  ModelDescription d = table_model(Task::regression);
  d.table->features = {{.name = "city",
                        .kind = FeatureKind::category,
                        .marks_missing = true,
                        .categories = {"Bern", "Rome"}},
                       {.name = "shop", .kind = FeatureKind::hashed, .buckets = 4},
                       {.name = "when", .kind = FeatureKind::date, .mean = 1, .std = 2},
                       {.name = "size", .marks_missing = true}};
  d.network.inputs = d.table->inputs();
  return d;
}

TEST_F(PredictorTest, TextDatesAndGapsOfATable) {
  const auto network = save(text_model());
  const Predictor model = Predictor::open(path_).value();
  const CsvTable rows = CsvTable::parse(
                            "size,city,when,shop\n,Rome,1970-01-04,a\n2,Oslo,1970-01-02,a\n"
                            "3,,,\n",
                            "t.csv")
                            .value();
  std::vector<int64_t> unseen;
  const Tensor inputs = model.inputs_of(rows, &unseen).value();
  EXPECT_EQ(unseen, (std::vector<int64_t>{1, 0, 0, 0}));  // Oslo
  // FNV-1a of "a" ends in 0x8c: bucket 0.
  EXPECT_EQ(inputs.to_vector(), (std::vector<double>{0, 1, 0, 1, 0, 0, 0, 1, 0, 1,  //
                                                     0, 0, 0, 1, 0, 0, 0, 0, 2, 0,  //
                                                     0, 0, 1, 0, 0, 0, 0, 0, 3, 0}));
  const NoGrad no_grad;
  EXPECT_EQ(model.predict(rows).value().values, model.predict(inputs).values);
  EXPECT_EQ(model.predict(inputs).values[0], 100 + 10 * network->forward(inputs).to_vector()[0]);
  EXPECT_EQ(model.inputs_of(CsvTable::parse("size,city,when,shop\n1,a,soon,b\n", "t.csv").value())
                .failure()
                .message,
            "t.csv: CsvDate: line 2, column 'when': expected a date like 2024-12-31 or "
            "2024-12-31T23:59:59, got 'soon'");
  EXPECT_EQ(model.inputs_of(CsvTable::parse("size,cit,when,shop\n1,a,,b\n", "t.csv").value())
                .failure()
                .message,
            "t.csv: TableColumn: expected the column 'city', which the model reads, got none of "
            "that name; did you mean cit?");
  EXPECT_ERROR(
      model.inputs_of(zeros({1, 4})),
      "[Predictor] expected a table, as 'city', which the model reads, is text; got numbers");
}

TEST_F(PredictorTest, ValuesThatAreNotThereAreGaps) {
  ModelDescription d = table_model(Task::regression);
  d.table->features[0].marks_missing = true;
  d.network.inputs = 4;
  save(d);
  const Predictor model = Predictor::open(path_).value();
  EXPECT_EQ(model.inputs_of(from_values({std::nan(""), 2.5, std::nan("")}, {1, 3})).to_vector(),
            (std::vector<double>{0, 1, 1, 0}));
}

// Each of these says something that cannot be.
TEST_F(PredictorTest, HostileFeatures) {
  const auto failure_with = [&](const std::function<void(Feature&)>& change, size_t feature) {
    ModelDescription d = text_model();
    const auto network = make_network(d.network);
    change(d.table->features[feature]);
    EXPECT_TRUE(save_model(path_, *network, d).ok());
    return failure();
  };
  const auto is_refused = [](const std::string& failure) {
    return failure.find("NotAModel") != std::string::npos;
  };
  EXPECT_TRUE(is_refused(failure_with([](Feature& f) { f.buckets = int64_t{1} << 60; }, 1)));
  EXPECT_TRUE(is_refused(failure_with([](Feature& f) { f.buckets = -4; }, 1)));
  EXPECT_TRUE(is_refused(failure_with([](Feature& f) { f.buckets = 5; }, 1)));
  EXPECT_TRUE(is_refused(failure_with([](Feature& f) { f.categories.pop_back(); }, 0)));
  EXPECT_TRUE(is_refused(failure_with([](Feature& f) { f.std = 0; }, 2)));
  EXPECT_TRUE(is_refused(failure_with([](Feature& f) { f.std = -1; }, 3)));
}

TEST_F(PredictorTest, FilesThatAreNoModels) {
  const std::string start = path_ + ": NotAModel: expected a model that epilogue train wrote; ";
  const NamedTensors weights = {{"0.weight", zeros({2, 2})}};
  const auto failure_with = [&](const Metadata& metadata) {
    EXPECT_TRUE(save_safetensors(path_, weights, metadata).ok());
    return failure();
  };
  EXPECT_EQ(failure_with({}), start + "its metadata has no \"model\"");
  EXPECT_TRUE(failure_with({{"model", "{"}}).starts_with(start + "its metadata reads "));
  EXPECT_TRUE(failure_with({{"model", "{}"}}).starts_with(start + "its metadata reads "));
  const std::string model =
      R"({"version": 1, "architecture": "mlp", "inputs": 4000000000, "hidden": 4000000000,
          "layers": 1, "outputs": 2, "dropout": 0, "task": "classification", "delimiter": ",",
          "header": true})";
  // A network that no memory holds is not made.
  EXPECT_EQ(failure_with({{"model", model}}),
            start + "its network has 16000000012000000000 weights, the file 4");
  EXPECT_EQ(failure_with({{"model", R"({"version": 2})"}}),
            start + "its version is 2, that known is 1");
}

}  // namespace epilogue::train::predictor_test
