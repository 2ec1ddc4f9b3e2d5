// SPDX-License-Identifier: Apache-2.0
// Tables as people have them: text, dates, gaps, names with commas, and what is refused.
#include "base/thread_pool.h"
#include "epilogue/data.h"
#include "epilogue/predictor.h"
#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"
#include "train/feature_encoder.h"

namespace epilogue::train::table_text_test {

using namespace io_test;

TableData data_of(std::string_view text, const TableOptions& options = {}) {
  return table_data(CsvTable::parse(text, "t.csv").value(), options).value();
}

std::string failure_of(std::string_view text, const TableOptions& options = {}) {
  auto data = table_data(CsvTable::parse(text, "t.csv").value(), options);
  return data ? "fine" : data.failure().message;
}

// n rows of these cells by turns, and a class.
std::string repeated(const std::string& column, const std::vector<std::string>& cells, int n) {
  std::string text = column + ",k\n";
  for (int i = 0; i < n; ++i)
    text += cells[static_cast<size_t>(i) % cells.size()] + "," + (i % 2 == 0 ? "x" : "y") + "\n";
  return text;
}

TEST(TableText, AnInputPerCategory) {
  const TableData d = data_of(repeated("city", {"Rome", "Oslo", "Bern"}, 30));
  ASSERT_EQ(d.meaning.features.size(), 1U);
  EXPECT_EQ(d.meaning.features[0].kind, FeatureKind::category);
  EXPECT_EQ(d.meaning.features[0].categories, (std::vector<std::string>{"Bern", "Oslo", "Rome"}));
  EXPECT_EQ(d.train.width(), 3);
  EXPECT_EQ(d.train.inputs.sizes(), (Dims{24, 1}));  // one value is stored
  const std::vector<double> inputs = d.train.laid_out().inputs.to_vector();
  for (size_t row = 0; row < 24; ++row)
    EXPECT_EQ(inputs[3 * row] + inputs[3 * row + 1] + inputs[3 * row + 2], 1);
}

// Batches get what evaluation gets.
TEST(TableText, BatchesAreLaidOut) {
  const TableData d = data_of(repeated("city", {"Rome", "", "Bern"}, 30));
  const Examples batch = EpochBatches(d.train, 24, 0, 0).batch(0);
  EXPECT_EQ(batch.layout, nullptr);
  EXPECT_EQ(batch.inputs.sizes(), (Dims{24, 3}));  // two cities, and whether there is none
  double sum = 0;
  for (const double v : batch.inputs.to_vector()) sum += v;
  EXPECT_EQ(sum, 24);
  EXPECT_EQ(d.train.rows(3, 7).laid_out().inputs.sizes(), (Dims{4, 3}));
}

TEST(TableText, ManyValuesAreHashed) {
  std::vector<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.push_back("id" + std::to_string(i));
  const TableData d = data_of(repeated("id", ids, 200), {.max_categories = 16});
  const Feature& f = d.meaning.features[0];
  EXPECT_EQ(f.kind, FeatureKind::hashed);
  EXPECT_EQ(f.buckets, 16);
  EXPECT_EQ(d.train.width(), 16);
  const FeatureEncoder encoder(d.meaning.features);
  const CsvTable one = CsvTable::parse("id\nhello\n", "t.csv").value();
  float stored = 0;
  const size_t columns[] = {0};
  ASSERT_TRUE(encoder.encode(one, 0, columns, &stored, nullptr).ok());
  EXPECT_EQ(stored, 0xa430d84680aabd0bULL % 16);  // FNV-1a of "hello", as its authors give it
  // One more than there are values is no reason to hash.
  EXPECT_EQ(data_of(repeated("id", ids, 200), {.max_categories = 100}).meaning.features[0].kind,
            FeatureKind::category);
}

TEST(TableText, NumbersThatAreNames) {
  const std::string text = repeated("zip", {"10115", "80331", "01067"}, 30);
  EXPECT_EQ(data_of(text).meaning.features[0].kind, FeatureKind::number);
  EXPECT_EQ(data_of(text, {.categorical = {"zip"}}).meaning.features[0].categories,
            (std::vector<std::string>{"01067", "10115", "80331"}));
  EXPECT_HAS(failure_of(text, {.categorical = {"zpi"}}), "did you mean zip?");
}

TEST(TableText, Dates) {
  EXPECT_EQ(days_of_date("1970-01-01"), 0);
  EXPECT_EQ(days_of_date("2024-02-29"), 19782);
  EXPECT_EQ(days_of_date("1969-12-31T12:00"), -0.5);
  EXPECT_EQ(days_of_date("1970-01-02 06:00:00"), 1.25);
  EXPECT_EQ(days_of_date("1970-01-02T06:00:00Z"), 1.25);
  EXPECT_EQ(days_of_date("1970-01-02T06:00:00+06:00"), 1);
  EXPECT_NEAR(days_of_date("1970-01-02T00:00:21.6-0600").value(), 1.25025, 1e-9);
  for (const char* text : {"", "2023-02-29", "2024-13-01", "2024-1-1", "24-01-01", "2024-01-01T",
                           "2024-01-01T24:00", "2024-01-01T10", "2024-01-01T10:00x",
                           "2024-01-01T10:00+", "2024-01-01x", "31.12.2024", "2024-01-011"})
    EXPECT_FALSE(days_of_date(text).has_value()) << text;
  const TableData d =
      data_of(repeated("when", {"2024-01-01", "2024-01-03T00:00", "2024-01-05"}, 30));
  EXPECT_EQ(d.meaning.features[0].kind, FeatureKind::date);
  EXPECT_NEAR(d.meaning.features[0].mean, 19725, 0.5);
}

TEST(TableText, OtherDatesAndDecimalCommasAreRefused) {
  EXPECT_EQ(failure_of(repeated("when", {"31.12.2024", "1.1.2025"}, 20)),
            "t.csv: CsvDate: line 2, column 'when': expected a date like 2024-12-31 or "
            "2024-12-31T23:59:59 (or leave the column out: --ignore), got '31.12.2024'");
  EXPECT_HAS(failure_of(repeated("when", {"12/31/24 10:00"}, 20)), "CsvDate");
  EXPECT_EQ(failure_of(repeated("size", {"\"1,5\"", "\"-2,25\""}, 20)),
            "t.csv: CsvNumber: line 2, column 'size': expected a number with a decimal point, got "
            "'1,5'");
  EXPECT_EQ(failure_of(repeated("when", {"2024-01-01", "2024-01-02", "soon"}, 20)),
            "t.csv: CsvDate: line 4, column 'when': expected a date like 2024-12-31 or "
            "2024-12-31T23:59:59, got 'soon'");
}

TEST(TableText, AStrayValueThatIsNotFiniteIsNamedWhateverTheTask) {
  for (const char* stray : {"-inf", "inf", "Infinity", "-nan", "1e999"}) {
    const std::string got = std::string("expected a finite number, got '") + stray + "'";
    EXPECT_EQ(failure_of(repeated("x", {"1", "2", stray, "3"}, 40)),
              "t.csv: CsvNumber: line 4, column 'x': " + got);
    std::string text = "x,y\n";
    for (int i = 0; i < 30; ++i) text += std::to_string(i) + "," + std::to_string(i % 3) + "\n";
    text += std::string("5,") + stray + "\n";
    for (const std::optional<Task> task : {std::optional<Task>(), std::optional(Task::regression),
                                           std::optional(Task::classification)})
      EXPECT_EQ(failure_of(text, {.task = task}), "t.csv: CsvNumber: line 32, column 'y': " + got);
  }
  // A class may be called so among classes that are text.
  EXPECT_EQ(data_of("x,y\n1,inf\n2,sup\n3,inf\n4,sup\n").meaning.classes,
            (std::vector<std::string>{"inf", "sup"}));
}

TEST(TableText, AStrayTextAmongManyNumbersIsNamed) {
  std::string text = "x,y\n";
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "," + std::to_string(i) + ".5\n";
  EXPECT_EQ(failure_of(text + "5,n.d.\n"),
            "t.csv: CsvNumber: line 102, column 'y': expected a finite number, got 'n.d.'");
  EXPECT_EQ(failure_of(text + "n.d.,5\n"),
            "t.csv: CsvNumber: line 102, column 'x': expected a finite number, got 'n.d.'");
}

TEST(TableText, NamesWithCommasAndQuotesCanBeIgnored) {
  const std::string text =
      "\"size, m2\",\"say \"\"hi\"\"\",a,b c,k\n1,2,3,4,x\n2,3,4,5,y\n3,4,5,6,x\n";
  const auto names = [&](std::vector<std::string> ignore) {
    std::string all;
    for (const Feature& f : data_of(text, {.ignore = std::move(ignore)}).meaning.features)
      all += f.name + ";";
    return all;
  };
  EXPECT_EQ(names({"size, m2", "say \"hi\""}), "a;b c;");
  EXPECT_EQ(names({"\"size, m2\",a"}), "say \"hi\";b c;");
  EXPECT_EQ(names({"a,b c", "\"say \"\"hi\"\"\""}), "size, m2;");
  EXPECT_EQ(names({"a", "a"}), "size, m2;say \"hi\";b c;");
}

TEST(TableText, AWrongNameOrDelimiterHasAHint) {
  EXPECT_EQ(failure_of("width,height,kind\n1,2,x\n2,3,y\n", {.target = "knd"}),
            "t.csv: TableColumn: expected one of the columns width, height, kind; got 'knd'; did "
            "you mean kind?");
  EXPECT_EQ(failure_of("a;y\n1;2\n2;3\n"),
            "t.csv: TableColumn: expected a column besides the target 'a;y', got none; 'a;y' looks "
            "like --delimiter ';'");
  EXPECT_HAS(failure_of("a\ty\n1\t2\n2\t3\n", {.target = "y"}), "looks like --delimiter tab");
  EXPECT_EQ(CsvTable::parse("a;y\n1,5;2\n", "t.csv").failure().message,
            "t.csv: CsvWidth: line 2: expected 1 cells, got 2; 'a;y' looks like --delimiter ';'");
}

// A table of several parts, with quotes, gaps and line breaks in cells.
std::string large_table(int rows) {
  std::mt19937 draw(3);
  std::string text = "x,when,city,note,y\n";
  for (int i = 0; i < rows; ++i) {
    const unsigned a = draw() % 1000, b = draw() % 28 + 1, c = draw() % 7;
    text += (a % 50 == 0 ? "" : std::to_string(a)) + ",2024-02-" + (b < 10 ? "0" : "") +
            std::to_string(b) + "," + (c == 0 ? "" : "\"town, \n" + std::to_string(c) + "\"") +
            ",n" + std::to_string(draw() % 300) + "," + (i % 97 == 0 ? "" : std::to_string(a * c)) +
            "\n";
  }
  return text;
}

TEST(TableText, AFileInPartsIsTheTableWhateverTheThreads) {
  const TempFolder folder;
  const std::string path = folder.path() + "/large.csv";
  write_bytes(path, large_table(80000));
  const TableOptions options = {.task = Task::regression};
  const TableData whole = table_data(CsvTable::read(path).value(), options).value();
  const int threads = num_threads();
  std::vector<TableData> parts;
  int64_t calls = 0;
  for (const int n : {1, 4}) {
    set_num_threads(n);
    parts.push_back(read_table_data(path, {}, options, [&](int64_t done, int64_t total) {
                      ++calls;
                      EXPECT_LE(done, total);
                    }).value());
  }
  set_num_threads(threads);
  EXPECT_GE(calls, 2 * 3 * 2);  // of two parts or more, three passes, twice
  EXPECT_EQ(fingerprint(parts[0].train), fingerprint(parts[1].train));
  EXPECT_EQ(fingerprint(parts[0].test), fingerprint(parts[1].test));
  EXPECT_EQ(parts[0].notes.missing, whole.notes.missing);
  EXPECT_EQ(parts[0].notes.rows_without_target, whole.notes.rows_without_target);
  ASSERT_EQ(parts[0].train.size(), whole.train.size());
  EXPECT_EQ(parts[0].meaning.features[2].categories, whole.meaning.features[2].categories);
  EXPECT_EQ(parts[0].meaning.features[3].kind, FeatureKind::hashed);
  const auto a = parts[0].train.laid_out().inputs.to_vector();
  const auto b = whole.train.laid_out().inputs.to_vector();
  for (size_t i = 0; i < a.size(); i += 13) ASSERT_NEAR(a[i], b[i], 1e-6);
  const auto y = parts[0].train.targets.to_vector(), z = whole.train.targets.to_vector();
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], z[i], 1e-6);
}

TEST(TableText, WhatIsWrongInAFileInPartsIsWhatIsWrongInTheTable) {
  const TempFolder folder;
  const std::string path = folder.path() + "/bad.csv";
  for (const char* bad : {"1,2\n", "\"open,2024-02-01,a,b,1\n", "1,2024-02-01,a\"b,c,1\n"}) {
    std::string text = large_table(60000);
    text.insert(text.find('\n', text.size() / 2 + 40) + 1, bad);
    write_bytes(path, text);
    const auto whole = CsvTable::read(path);
    const auto parts = read_table_data(path, {}, {});
    if (!whole) {
      ASSERT_FALSE(parts.ok());
      EXPECT_EQ(parts.failure().message, whole.failure().message);
    }
  }
  EXPECT_HAS(read_table_data(folder.path() + "/none.csv", {}, {}).failure().message,
             "none.csv: cannot read");
}

TEST(InputLayoutTest, StoredValuesBecomeInputs) {
  const InputLayout layout(
      {{}, {.is_category = true, .width = 3, .marks_missing = true}, {.marks_missing = true}});
  EXPECT_EQ(layout.width(), 7);
  const double nan = std::nan("");
  const Tensor inputs =
      layout.inputs_of(from_values({0.5, 2.0, 1.5, -1.0, nan, nan, 7.0, -1.0, 0.0}, {3, 3}));
  EXPECT_EQ(inputs.to_vector(), (std::vector<double>{0.5, 0, 0, 1, 0, 1.5, 0,  //
                                                     -1,  0, 0, 0, 1, 0,   1,  //
                                                     7,   0, 0, 0, 0, 0,   0}));
  EXPECT_ERROR(layout.inputs_of(zeros({2, 4})), "[InputLayout] expected f32 [n, 3], got f32[2, 4]");
}

}  // namespace epilogue::train::table_text_test
