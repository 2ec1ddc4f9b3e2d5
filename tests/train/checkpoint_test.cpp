// SPDX-License-Identifier: Apache-2.0
// Checkpoint files: what goes in comes out; what is damaged or foreign is refused; which are kept.
#include "epilogue/checkpoint.h"

#include "epilogue/io.h"
#include "errors/message_of.h"
#include "io/files.h"
#include "support/test.h"

namespace epilogue::train::checkpoint_test {

namespace fs = std::filesystem;
using namespace io_test;

StateDict some_state(double value = 1) {
  return {
      {{"model.w", from_values({value, 2, 3}, {3})}, {"model.n", from_values({7}, {}, DType::i64)}},
      {{"position.step", "12"}, {"config.arch", "mlp"}}};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, PartsGoInAndOut) {
  StateDict whole;
  add_part(whole, "a", {{{"x", ones({2})}}, {{"k", "1"}}});
  add_part(whole, "ab", {{}, {{"k", "2"}}});
  EXPECT_EQ(whole.metadata.at("a.k"), "1");
  const StateDict a = part_of(whole, "a");
  ASSERT_EQ(a.tensors.size(), 1U);
  EXPECT_EQ(a.tensors[0].first, "x");
  EXPECT_EQ(a.metadata, (Metadata{{"k", "1"}}));  // not ab's
  EXPECT_TRUE(part_of(whole, "b").metadata.empty());
}

TEST(Checkpoint, RoundTrip) {
  const TempFolder folder;
  ASSERT_TRUE(write_checkpoint(folder / "c.safetensors", some_state()).ok());
  const StateDict back = read_checkpoint(folder / "c.safetensors").value();
  EXPECT_EQ(back.metadata, some_state().metadata);
  ASSERT_EQ(back.tensors.size(), 2U);
  for (const auto& [name, tensor] : back.tensors)
    EXPECT_EQ(tensor.to_vector(),
              name == "model.w" ? (std::vector<double>{1, 2, 3}) : (std::vector<double>{7}));
}

TEST(Checkpoint, TheFormatIsPlainSafetensors) {
  const TempFolder folder;
  ASSERT_TRUE(write_checkpoint(folder / "c.safetensors", some_state()).ok());
  const SafetensorsFile file = SafetensorsFile::open(folder / "c.safetensors").value();
  EXPECT_EQ(file.metadata().at("epilogue.checkpoint"), "1");
  EXPECT_EQ(file.metadata().at("epilogue.crc32").size(), 8U);
  EXPECT_TRUE(file.contains("model.w"));
}

TEST(Checkpoint, EveryFlippedByteIsFound) {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  ASSERT_TRUE(write_checkpoint(path, some_state()).ok());
  const std::string bytes = read_bytes(path);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_bytes(path, damaged);
    auto back = read_checkpoint(path);
    EXPECT_FALSE(back.ok()) << "byte " << i;
    if (!back) {
      EXPECT_EQ(back.failure().message.find('\n'), std::string::npos);
    }
  }
}

TEST(Checkpoint, EveryTruncationIsFound) {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  ASSERT_TRUE(write_checkpoint(path, some_state()).ok());
  const std::string bytes = read_bytes(path);
  for (size_t n = 0; n < bytes.size(); ++n) {
    write_bytes(path, bytes.substr(0, n));
    EXPECT_FALSE(read_checkpoint(path).ok()) << n << " bytes";
  }
}

TEST(Checkpoint, ForeignFilesAreRefusedInOneLine) {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  ASSERT_TRUE(save_safetensors(path, {{"w", ones({2})}}).ok());
  EXPECT_EQ(read_checkpoint(path).failure().message,
            path +
                ": NotACheckpoint: expected a checkpoint of a training run (metadata "
                "'epilogue.checkpoint'), got a safetensors file of 1 tensors without it");
  ASSERT_TRUE(save_safetensors(path, {}, {{"epilogue.checkpoint", "9"}}).ok());
  EXPECT_EQ(read_checkpoint(path).failure().message,
            path + ": CheckpointVersion: expected a checkpoint of version 1, got '9'");
  ASSERT_TRUE(save_safetensors(path, {}, {{"epilogue.checkpoint", "1"}}).ok());
  EXPECT_EQ(read_checkpoint(path).failure().code, FailureCode::checkpoint_corrupt);
}

TEST(CheckpointFolder, KeepsTheLastTwo) {
  const TempFolder folder;
  const CheckpointFolder checkpoints(folder.path());
  EXPECT_TRUE(checkpoints.files().empty());
  EXPECT_EQ(checkpoints.load().failure().code, FailureCode::no_checkpoint);
  for (const int64_t step : {5, 10, 900, 1000000000})
    ASSERT_TRUE(checkpoints.save(step, some_state(static_cast<double>(step))).ok());
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"checkpoint-000000900.safetensors",
                                      "checkpoint-1000000000.safetensors"}));
  const auto loaded = checkpoints.load().value();
  EXPECT_EQ(loaded.file, checkpoints.file(1000000000));
  EXPECT_TRUE(loaded.refused.empty());
}

TEST(CheckpointFolder, GoesBackToTheOneBeforeADamagedOne) {
  const TempFolder folder;
  const CheckpointFolder checkpoints(folder.path());
  ASSERT_TRUE(checkpoints.save(1, some_state()).ok());
  ASSERT_TRUE(checkpoints.save(2, some_state()).ok());
  write_bytes(checkpoints.file(2), "half a file");
  const auto loaded = checkpoints.load().value();
  EXPECT_EQ(loaded.file, checkpoints.file(1));
  ASSERT_EQ(loaded.refused.size(), 1U);
  EXPECT_TRUE(loaded.refused[0].message.starts_with(checkpoints.file(2) + ": "));

  write_bytes(checkpoints.file(1), "");
  EXPECT_TRUE(checkpoints.load().failure().message.starts_with(checkpoints.file(2)));
}

// A run that goes on from step 1 must not find the damaged step 3 again.
TEST(CheckpointFolder, SavingRemovesLaterStepsAndWhatAKilledProcessLeft) {
  const TempFolder folder;
  const CheckpointFolder checkpoints(folder.path());
  ASSERT_TRUE(checkpoints.save(1, some_state()).ok());
  write_bytes(checkpoints.file(3), "damaged");
  write_bytes(checkpoints.file(3) + ".tmp.123", "half written");
  write_bytes(folder / "metrics.jsonl", "");
  write_bytes(folder / "checkpoint-x.safetensors", "somebody else's");
  ASSERT_TRUE(checkpoints.save(2, some_state()).ok());
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"checkpoint-000000001.safetensors",
                                      "checkpoint-000000002.safetensors",
                                      "checkpoint-x.safetensors", "metrics.jsonl"}));
}

TEST(CheckpointFolder, AFailedSaveLeavesTheOthersAlone) {
  const TempFolder folder;
  const CheckpointFolder checkpoints(folder.path(), 1);
  ASSERT_TRUE(checkpoints.save(1, some_state()).ok());
  StateDict bad = some_state();
  bad.tensors.emplace_back("model.undefined", Tensor());
  EXPECT_FALSE(checkpoints.save(2, bad).ok());
  EXPECT_EQ(checkpoints.load().value().file, checkpoints.file(1));
  EXPECT_THROW(CheckpointFolder(folder.path(), 0), Error);
}

TEST(CheckpointFolder, ANegativeStepIsRefusedAndRemovesNothing) {
  const TempFolder folder;
  const CheckpointFolder checkpoints(folder.path(), 5);
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(checkpoints.save(step, some_state()).ok());
  const std::vector<std::string> before = names_in(folder.path());
  EXPECT_ERROR(checkpoints.save(-1, some_state()).value(),
               "[CheckpointFolder] expected a step of 0 or more, got -1");
  EXPECT_EQ(names_in(folder.path()), before);
  EXPECT_EQ(before.size(), 3U);
  ASSERT_TRUE(checkpoints.save(0, some_state()).ok());
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"checkpoint-000000000.safetensors"}));
}

TEST(CheckpointFolder, AnEmptyPathIsRefused) {
  EXPECT_ERROR(CheckpointFolder(""), "[CheckpointFolder] expected the path of a folder, got \"\"");
}

}  // namespace epilogue::train::checkpoint_test
