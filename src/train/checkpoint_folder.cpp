// SPDX-License-Identifier: Apache-2.0
// Which checkpoints of a run are kept, and which one it goes on from.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "epilogue/checkpoint.h"
#include "io/message.h"

namespace epilogue::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kTemporary = ".safetensors.tmp.";  // as base/file.h names them

struct Entry {
  int64_t step;
  std::string path;
};

// The step in "checkpoint-<step>.safetensors".
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return {};
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(kSuffix.size(), name.size()));
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return {};
  return step;
}

template <class Use>
void for_each_name(const std::string& folder, Use&& use) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    use(it->path().filename().string(), it->path().string());
}

std::vector<Entry> entries_of(const std::string& folder) {
  std::vector<Entry> entries;
  for_each_name(folder, [&](const std::string& name, const std::string& path) {
    if (const auto step = step_of(name)) entries.push_back({*step, path});
  });
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.step > b.step; });
  return entries;
}

void remove_file(const std::string& path) {
  std::error_code ignored;  // one file too many does no harm
  fs::remove(path, ignored);
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string path, size_t keep)
    : path_(std::move(path)), keep_(keep) {
  if (path_.empty()) throw Error("[CheckpointFolder] expected the path of a folder, got \"\"");
  if (keep_ < 1) throw Error("[CheckpointFolder] expected to keep 1 or more, got 0");
}

std::string CheckpointFolder::file(int64_t step) const {
  if (step < 0)
    throw Error(fmt::format("[CheckpointFolder] expected a step of 0 or more, got {}", step));
  return fmt::format("{}/{}{:09}{}", path_, kPrefix, step, kSuffix);
}

std::vector<std::string> CheckpointFolder::files() const {
  std::vector<std::string> paths;
  for (const Entry& e : entries_of(path_)) paths.push_back(e.path);
  return paths;
}

Status CheckpointFolder::save(int64_t step, const StateDict& state) const {
  if (auto s = write_checkpoint(file(step), state); !s) return s;
  size_t kept = 0;
  for (const Entry& e : entries_of(path_))
    if (e.step > step || ++kept > keep_) remove_file(e.path);
  for_each_name(path_, [](const std::string& name, const std::string& path) {
    if (name.starts_with(kPrefix) && name.find(kTemporary) != std::string::npos) remove_file(path);
  });
  return ok_status();
}

Result<CheckpointFolder::Loaded> CheckpointFolder::load() const {
  Loaded loaded;
  for (const std::string& path : files()) {
    auto state = read_checkpoint(path);
    if (state) {
      loaded.state = std::move(state).value();
      loaded.file = path;
      return loaded;
    }
    loaded.refused.push_back(state.failure());
  }
  if (!loaded.refused.empty()) return loaded.refused.front();
  return io::io_failure(path_, FailureCode::no_checkpoint,
                        fmt::format("expected a file {}STEP{}, got none", kPrefix, kSuffix));
}

}  // namespace epilogue::train
