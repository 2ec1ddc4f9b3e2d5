// SPDX-License-Identifier: Apache-2.0
// Tables as tensors: which rows are held out, how values are scaled, what is refused.
#include "epilogue/data.h"
#include "support/test.h"

namespace epilogue::train::table_data_test {

CsvTable table_of(std::string_view text) { return CsvTable::parse(text, "t.csv").value(); }

TableData data_of(std::string_view text, const TableOptions& options = {}) {
  return table_data(table_of(text), options).value();
}

std::string failure_of(std::string_view text, const TableOptions& options = {}) {
  auto data = table_data(table_of(text), options);
  return data ? "fine" : data.failure().message;
}

// n rows: x = i, y = 10 i.
std::string ramp(int n) {
  std::string text = "x,y\n";
  for (int i = 0; i < n; ++i) text += std::to_string(i) + "," + std::to_string(10 * i) + "\n";
  return text;
}

TEST(TableData, ClassesAreSortedNames) {
  const TableData d = data_of("x,kind\n1,pear\n2,apple\n3,pear\n4,fig\n5,apple\n");
  EXPECT_EQ(d.meaning.task, Task::classification);
  EXPECT_EQ(d.meaning.target, "kind");
  EXPECT_EQ(d.meaning.classes, (std::vector<std::string>{"apple", "fig", "pear"}));
  EXPECT_EQ(d.train.size(), 4);
  EXPECT_EQ(d.test.size(), 1);
  EXPECT_EQ(d.train.inputs.sizes(), (Dims{4, 1}));
  EXPECT_EQ(d.train.targets.dtype(), DType::i64);
}

TEST(TableData, NumericClassesAreSortedAsNumbersAndWrittenAnyWay) {
  const TableData d = data_of("x,k\n1,10\n2,9\n3,9.0\n4,10\n5,-1\n");
  EXPECT_EQ(d.meaning.classes, (std::vector<std::string>{"-1", "9", "10"}));
}

// Sums and squares of these are infinite, squares of the others 0.
TEST(TableData, FeaturesAtTheEndsOfTheRangeAreScaled) {
  const TableData d = data_of(
      "huge,tiny,y\n1e308,1e-200,1\n-1e308,2e-200,2\n1.7e308,3e-200,3\n-1.7e308,4e-200,4\n"
      "1e308,5e-200,5\n-1e308,6e-200,6\n");
  EXPECT_TRUE(d.notes.constant.empty());
  const std::vector<double> inputs = d.train.inputs.to_vector();
  for (const size_t feature : {0U, 1U}) {
    EXPECT_TRUE(std::isfinite(d.meaning.features[feature].mean));
    EXPECT_TRUE(std::isfinite(d.meaning.features[feature].std));
    double sum = 0;
    double squares = 0;
    for (size_t row = 0; row < 5; ++row) {
      sum += inputs[2 * row + feature];
      squares += std::pow(inputs[2 * row + feature], 2);
    }
    EXPECT_NEAR(sum, 0, 1e-6);
    EXPECT_NEAR(squares, 5, 1e-5);  // of 5 rows: one is held out
  }
}

// Every row keeps its own target through the split: x tells the row, y = 10 x.
TEST(TableData, RowsAndTargetsStayTogether) {
  const TableData d = data_of(ramp(50), {.task = Task::regression});
  EXPECT_EQ(d.train.size(), 40);
  EXPECT_EQ(d.test.size(), 10);
  EXPECT_EQ(d.train.targets.sizes(), (Dims{40, 1}));
  for (const Examples* part : {&d.train, &d.test}) {
    const auto x = part->inputs.to_vector(), y = part->targets.to_vector();
    for (size_t i = 0; i < x.size(); ++i) {
      const double row = x[i] * d.meaning.features[0].std + d.meaning.features[0].mean;
      const double target = y[i] * d.meaning.target_std + d.meaning.target_mean;
      EXPECT_NEAR(target, 10 * row, 1e-3);
      EXPECT_NEAR(row, std::round(row), 1e-4);
    }
  }
}

TEST(TableData, TrainingRowsAloneGiveMeanAndDeviation) {
  const TableData d = data_of(ramp(50));
  const auto x = d.train.inputs.to_vector();
  double sum = 0, squares = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
  }
  EXPECT_NEAR(sum / 40, 0, 1e-6);
  EXPECT_NEAR(squares / 40, 1, 1e-5);
  double test_sum = 0;
  for (const double v : d.test.inputs.to_vector()) test_sum += v;
  EXPECT_GT(std::abs(test_sum / 10), 1e-4);  // not of the test rows
}

// 4 training rows and 1 test row; whichever is held out, the mean is that of the other four.
TEST(TableData, MeanAndDeviationByHand) {
  const TableData d = data_of("x,y\n1,0.5\n2,1.5\n3,2.5\n4,3.5\n10,9.5\n");
  const double held =
      d.test.inputs.to_vector()[0] * d.meaning.features[0].std + d.meaning.features[0].mean;
  EXPECT_NEAR(d.meaning.features[0].mean, (20 - held) / 4, 1e-5);
  double variance = 0;
  for (const double v : {1.0, 2.0, 3.0, 4.0, 10.0})
    if (std::abs(v - held) > 0.5) variance += std::pow(v - d.meaning.features[0].mean, 2) / 4;
  EXPECT_NEAR(d.meaning.features[0].std, std::sqrt(variance), 1e-6);
}

TEST(TableData, TheSplitDependsOnTheSeed) {
  const auto held = [](uint64_t seed) {
    return data_of(ramp(50), {.seed = seed}).meaning.features[0].mean;
  };
  EXPECT_EQ(held(1), held(1));
  EXPECT_NE(held(1), held(2));
}

TEST(TableData, AtLeastOneRowOnEachSide) {
  EXPECT_EQ(data_of(ramp(2), {.task = Task::regression, .held_out = 0.01}).test.size(), 1);
  EXPECT_EQ(data_of(ramp(2), {.task = Task::regression, .held_out = 0.99}).train.size(), 1);
  EXPECT_THROW(data_of(ramp(4), {.held_out = 0}), Error);
  EXPECT_THROW(data_of(ramp(4), {.held_out = 1}), Error);
}

TEST(TableData, MissingValuesBecomeTheMeanAndAreCounted) {
  const TableData d = data_of("a,b,k\n1,,x\n2,5,y\nNA,6,x\n3,?,y\n5,7,\n6,8,x\n");
  EXPECT_EQ(d.notes.rows_without_target, 1);
  ASSERT_EQ(d.notes.missing.size(), 2U);
  EXPECT_EQ(d.notes.missing[0], (std::pair<std::string, int64_t>("a", 1)));
  EXPECT_EQ(d.notes.missing[1], (std::pair<std::string, int64_t>("b", 2)));
  // A missing value is 0, the mean; where a training row misses one, an input more is 1.
  const int64_t width = d.train.width();
  for (const Examples* part : {&d.train, &d.test}) {
    const std::vector<double> inputs = part->laid_out().inputs.to_vector();
    ASSERT_EQ(inputs.size(), static_cast<size_t>(part->size() * width));
    for (const double v : inputs) EXPECT_TRUE(std::isfinite(v));
  }
  int64_t expected = 0;
  for (const Feature& f : d.meaning.features) expected += f.marks_missing ? 2 : 1;
  EXPECT_EQ(width, expected);
  EXPECT_TRUE(d.meaning.features[1].marks_missing);  // one of its two is no test row
}

TEST(TableData, ConstantColumnsAreZeroWhateverComes) {
  const TableData d = data_of("a,b,k\n3,1,x\n3,2,y\n3,4,x\n3,5,y\n3,9,x\n");
  EXPECT_EQ(d.notes.constant, (std::vector<std::string>{"a"}));
  EXPECT_TRUE(std::isinf(d.meaning.features[0].std));
  for (int64_t i = 0; i < d.train.size(); ++i)
    EXPECT_EQ(d.train.inputs.to_vector()[static_cast<size_t>(2 * i)], 0);
}

TEST(TableData, AConstantTargetOfRegressionIsNotDividedByZero) {
  const TableData d = data_of("a,k\n1,7\n2,7\n3,7\n", {.task = Task::regression});
  EXPECT_EQ(d.meaning.target_mean, 7);
  EXPECT_EQ(d.meaning.target_std, 1);
  EXPECT_EQ(d.train.targets.to_vector(), (std::vector<double>{0, 0}));
}

TEST(TableData, TheTaskFollowsFromTheTarget) {
  EXPECT_EQ(data_of(ramp(20)).meaning.task, Task::classification);  // 20 whole numbers
  EXPECT_EQ(data_of(ramp(21)).meaning.task, Task::regression);
  EXPECT_EQ(data_of("x,y\n1,0.5\n2,1\n").meaning.task, Task::regression);
  EXPECT_EQ(data_of("x,y\n1,0.5\n2,1\n", {.task = Task::classification}).meaning.classes,
            (std::vector<std::string>{"0.5", "1"}));
}

TEST(TableData, ColumnsCanBeNamedAndIgnored) {
  const TableData d =
      data_of("id,k,x\nr1,a,1\nr2,b,2\nr3,a,3\n", {.target = "k", .ignore = {"id"}});
  ASSERT_EQ(d.meaning.features.size(), 1U);
  EXPECT_EQ(d.meaning.features[0].name, "x");
  EXPECT_EQ(failure_of("a,b\n1,2\n1,3\n", {.target = "c"}),
            "t.csv: TableColumn: expected one of the columns a, b; got 'c'");
  EXPECT_EQ(failure_of("a,b\n1,2\n1,3\n", {.ignore = {"z"}}),
            "t.csv: TableColumn: expected one of the columns a, b; got 'z'");
  EXPECT_EQ(failure_of("a\n1\n2\n"),
            "t.csv: TableColumn: expected a column besides the target 'a', got none");
}

TEST(TableData, Refusals) {
  EXPECT_EQ(failure_of("a,b\n1,2\n1,\n"),
            "t.csv: TableRows: expected two rows or more with a value of 'b', got 1");
  EXPECT_EQ(failure_of("a,b\n1,x\n2,x\n"),
            "t.csv: TableTarget: expected two classes or more in 'b', got 'x' alone");
  EXPECT_EQ(failure_of("a,b\n1,x\n2,y\n", {.task = Task::regression}),
            "t.csv: CsvNumber: line 2, column 'b': expected a finite number, got 'x'");
  EXPECT_EQ(failure_of("a,b\n1,x\nParis,y\n"),
            "t.csv: CsvNumber: line 3, column 'a': expected a finite number, got 'Paris'");
  EXPECT_EQ(failure_of(ramp(30), {.task = Task::classification}),
            "t.csv: TableTarget: expected classes with several rows each in 'y', got 30 classes in "
            "30 rows (a quantity is a matter of regression)");
}

// Values beyond f32's range are scaled in double first.
TEST(TableData, LargeValuesAreScaledInDouble) {
  const TableData d = data_of("a,k\n1e60,x\n3e60,y\n2e60,x\n4e60,y\n");
  const std::vector<double> inputs = d.train.inputs.to_vector();
  ASSERT_FALSE(inputs.empty());
  for (const double v : inputs) EXPECT_TRUE(std::isfinite(v));
}

}  // namespace epilogue::train::table_data_test
