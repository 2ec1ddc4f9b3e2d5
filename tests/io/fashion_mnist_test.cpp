// SPDX-License-Identifier: Apache-2.0
// The data set as Debian packages it (skipped where the package is absent), and damaged copies.
#include "epilogue/io.h"
#include "files.h"
#include "support/test.h"

namespace epilogue::fashion_mnist_test {

using namespace io_test;

std::string header(std::initializer_list<int> dims) {
  std::string out("\0\0\x08", 3);
  out += static_cast<char>(dims.size());
  for (const int dim : dims)
    out += std::string("\0\0", 2) + static_cast<char>(dim >> 8) + static_cast<char>(dim);
  return out;
}

// A test split of two images: all 0, all 255.
void write_split(const TempFolder& folder, std::string_view labels) {
  write_bytes(folder / "t10k-images-idx3-ubyte",
              header({2, 28, 28}) + std::string(784, '\0') + std::string(784, '\xff'));
  write_bytes(folder / "t10k-labels-idx1-ubyte",
              header({static_cast<int>(labels.size())}) + std::string(labels));
}

FashionMnistOptions test_only(const TempFolder& folder) {
  return FashionMnistOptions{.dir = folder.path(), .train = false};
}

void expect_failure(const TempFolder& folder, FailureCode code, std::string_view detail) {
  const auto data = load_fashion_mnist(test_only(folder));
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.failure().code, code);
  EXPECT_EQ(data.failure().message, folder.path() + ": " + std::string(failure_code_name(code)) +
                                        ": " + std::string(detail));
}

TEST(FashionMnist, ReadsUnpackedFilesAndNormalises) {
  const TempFolder folder;
  write_split(folder, std::string_view("\x09\x00", 2));
  const Dataset data = load_fashion_mnist(test_only(folder)).value();
  EXPECT_FALSE(data.train.images.defined());
  EXPECT_EQ(to_string(data.test.images), "f32[2, 784]");
  EXPECT_EQ(to_string(data.test.labels), "i64[2]");
  EXPECT_EQ(data.test.labels.to_vector(), (std::vector<double>{9, 0}));
  EXPECT_EQ(data.test.images.data_as<float>()[0], (0.0F - 0.2860F) / 0.3530F);
  EXPECT_EQ(data.test.images.data_as<float>()[784], (1.0F - 0.2860F) / 0.3530F);
}

TEST(FashionMnist, NormalisationCanBeChosen) {
  const TempFolder folder;
  write_split(folder, std::string_view("\x09\x00", 2));
  FashionMnistOptions options = test_only(folder);
  options.mean = 0;
  options.std = 1;
  const Dataset data = load_fashion_mnist(options).value();
  EXPECT_EQ(data.test.images.data_as<float>()[0], 0.0F);
  EXPECT_EQ(data.test.images.data_as<float>()[2 * 784 - 1], 1.0F);
  options.std = 0;
  EXPECT_THROW((void)load_fashion_mnist(options), Error);
}

TEST(FashionMnist, ReadsTheFirstImages) {
  const TempFolder folder;
  write_split(folder, std::string_view("\x09\x00", 2));
  FashionMnistOptions options = test_only(folder);
  options.max_images = 1;
  const Dataset data = load_fashion_mnist(options).value();
  EXPECT_EQ(to_string(data.test.images), "f32[1, 784]");
  EXPECT_EQ(to_string(data.test.labels), "i64[1]");
}

TEST(FashionMnist, MissingFolderNamesThePackage) {
  FashionMnistOptions options;
  options.dir = "/nonexistent/mnist";
  const auto data = load_fashion_mnist(options);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.failure().code, FailureCode::dataset_missing);
  EXPECT_EQ(data.failure().message,
            "/nonexistent/mnist: DatasetMissing: expected the Fashion-MNIST file "
            "train-images-idx3-ubyte.gz, got none; install it with: apt install "
            "dataset-fashion-mnist");
}

TEST(FashionMnist, FewerLabelsThanImages) {
  const TempFolder folder;
  write_split(folder, "\x01");
  expect_failure(folder, FailureCode::dataset_mismatch,
                 "t10k: expected images [N, 28, 28] and labels [N], got [2, 28, 28] and [1]");
}

TEST(FashionMnist, LabelOutOfRange) {
  const TempFolder folder;
  write_split(folder, "\x01\x0a");
  expect_failure(folder, FailureCode::dataset_mismatch,
                 "t10k: expected labels below 10, got 10 at 1");
}

TEST(FashionMnist, ImagesOfAnotherSize) {
  const TempFolder folder;
  write_split(folder, "\x01\x01");
  write_bytes(folder / "t10k-images-idx3-ubyte", header({2, 2, 1}) + "abcd");
  expect_failure(folder, FailureCode::dataset_mismatch,
                 "t10k: expected images [N, 28, 28] and labels [N], got [2, 2, 1] and [2]");
}

TEST(FashionMnist, TheRealDataSet) {
  const FashionMnistOptions options;
  if (!std::filesystem::exists(options.dir))
    GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  const auto loaded = load_fashion_mnist(options);
  ASSERT_TRUE(loaded.ok()) << loaded.failure().message;
  const Dataset& data = loaded.value();
  EXPECT_EQ(to_string(data.train.images), "f32[60000, 784]");
  EXPECT_EQ(to_string(data.test.images), "f32[10000, 784]");

  // Facts of the data set: the classes are balanced, and the constants normalise the training set.
  for (const auto& [split, per_class] :
       {std::pair{&data.train, 6000}, std::pair{&data.test, 1000}}) {
    std::array<int, 10> counts{};
    for (int64_t i = 0; i < split->labels.numel(); ++i)
      ++counts[static_cast<size_t>(split->labels.data_as<int64_t>()[i])];
    for (const int count : counts) EXPECT_EQ(count, per_class);
  }
  const float* pixels = data.train.images.data_as<float>();
  const auto n = static_cast<double>(data.train.images.numel());
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < data.train.images.numel(); ++i) {
    sum += pixels[i];
    squares += static_cast<double>(pixels[i]) * pixels[i];
  }
  EXPECT_NEAR(sum / n, 0.0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / n), 1.0, 1e-3);
}

TEST(FashionMnist, TheFirstRealImagesAreThoseOfTheWhole) {
  FashionMnistOptions options;
  if (!std::filesystem::exists(options.dir))
    GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  options.train = false;
  const Dataset all = load_fashion_mnist(options).value();
  options.max_images = 100;
  const Dataset first = load_fashion_mnist(options).value();
  ASSERT_EQ(to_string(first.test.images), "f32[100, 784]");
  EXPECT_EQ(
      std::memcmp(first.test.images.data(), all.test.images.data(), first.test.images.bytes()), 0);
}

}  // namespace epilogue::fashion_mnist_test
