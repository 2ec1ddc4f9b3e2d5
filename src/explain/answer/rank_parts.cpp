// SPDX-License-Identifier: Apache-2.0
// The ranks of a run in parts: each part reads its traces, wherever it runs; joined they are the
// run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/units.h"
#include "epilogue/base/error.h"
#include "epilogue/trace/answer.h"
#include "epilogue/trace/report.h"
#include "explain/answer/load.h"
#include "explain/answer/rank_folder.h"
#include "explain/findings/explain_ranks.h"
#include "explain/ranks/rank_part.h"
#include "explain/render/document.h"
#include "explain/render/documents.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kPartEnd = ".epart";

// What decides what a digest holds.
std::string options_text(const TraceInput& folder, bool modules) {
  std::string text = modules ? "--modules" : "";
  if (folder.step) text += fmt::format(" --step {}", *folder.step);
  if (folder.from_ms) text += fmt::format(" --from {}", *folder.from_ms);
  if (folder.to_ms) text += fmt::format(" --to {}", *folder.to_ms);
  return text;
}

std::vector<RankPart::File> files_of(const std::vector<std::string>& paths) {
  std::vector<RankPart::File> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    files.push_back({std::filesystem::path(path).filename().string(),
                     error ? -1 : static_cast<int64_t>(bytes)});
  }
  return files;
}

// The parts that are named, those of a folder by name.
std::vector<std::string> part_paths(const std::vector<std::string>& inputs) {
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(input, ignored)) {
      paths.push_back(input);
      continue;
    }
    const size_t first = paths.size();
    for (const auto& entry : std::filesystem::directory_iterator(input))
      if (const std::string path = entry.path().string(); path.ends_with(kPartEnd))
        paths.push_back(path);
    if (paths.size() == first)
      throw Error(
          fmt::format("{}: expected parts (*{}) that epilogue explain --shard wrote, got none",
                      input, kPartEnd));
    std::sort(paths.begin() + static_cast<std::ptrdiff_t>(first), paths.end());
  }
  if (paths.empty()) throw Error("[merge] expected one part or more, got none");
  return paths;
}

// "2, 5, 7"
std::string list_text(const std::vector<int64_t>& numbers) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, numbers.size()); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  if (numbers.size() > kShown) text += fmt::format(" and {} more", numbers.size() - kShown);
  return text;
}

// Parts of one run, in any order, each once and all of them.
class PartJoiner {
 public:
  // Throws Error if the part does not go with those before it.
  void add(RankPart part, const std::string& path) {
    if (paths_.empty()) {
      count_ = part.count;
      options_ = part.options;
      files_ = part.files;
      folder_ = part.folder;
    }
    const std::string other = paths_.empty() ? "" : paths_.begin()->second;
    if (part.count != count_)
      throw Error(fmt::format("{} is one of {} parts, {} one of {}: expected parts of one run",
                              path, part.count, other, count_));
    if (part.options != options_)
      throw Error(fmt::format("{} was written with '{}', {} with '{}': expected the same options",
                              path, part.options, other, options_));
    if (part.files != files_)
      throw Error(fmt::format(
          "{} saw {} traces of {} bytes in its folder, {} {} of {}: expected "
          "the same files, none written meanwhile",
          path, part.files.size(), bytes_of(part.files), other, files_.size(), bytes_of(files_)));
    const auto [same, is_new] = paths_.emplace(part.index, path);
    if (!is_new)
      throw Error(fmt::format("{} and {} are both part {} of {}: expected each part once",
                              same->second, path, part.index, count_));
    for (size_t i = 0; i < part.positions.size(); ++i)
      ranks_.emplace(part.positions[i],
                     renamed(std::move(part.digests.ranks[i]), part.digests.names));
    for (RankPart::LeftOut& left_out : part.left_out)
      left_out_.emplace(left_out.position,
                        Failure{static_cast<FailureCode>(left_out.code), left_out.message});
  }

  // As the run in one piece is read. Throws Error if a part is missing.
  Result<RankFolder> join(const AnswerHooks& hooks) && {
    std::vector<int64_t> missing;
    for (int64_t i = 1; i <= count_; ++i)
      if (!paths_.contains(i)) missing.push_back(i);
    if (!missing.empty())
      throw Error(fmt::format("[merge] expected all {} parts, got {}: {} {} missing", count_,
                              paths_.size(), list_text(missing),
                              missing.size() == 1 ? "is" : "are"));
    RankFolder folder;
    folder.digests.names = std::move(names_);
    for (auto& [position, digest] : ranks_) {
      folder.paths.push_back(digest.identity.path);
      folder.digests.ranks.push_back(std::move(digest));
    }
    std::vector<Failure> failures;
    failures.reserve(left_out_.size());
    for (auto& [position, failure] : left_out_) failures.push_back(std::move(failure));
    const Status judged = judge_folder(folder_, failures, folder, hooks);
    if (!judged) return judged.failure();
    if (folder.paths.size() == 1)
      throw Error(
          fmt::format("{}: expected the traces of two ranks or more, got one, {}: explain it "
                      "by itself",
                      folder_, folder.paths.front()));
    return folder;
  }

 private:
  static int64_t bytes_of(const std::vector<RankPart::File>& files) {
    int64_t bytes = 0;
    for (const RankPart::File& file : files) bytes += std::max<int64_t>(file.bytes, 0);
    return bytes;
  }

  RankDigest renamed(RankDigest digest, const StringPool& names) {
    visit_names(digest, [&](StringId& id) { id = names_.intern(names[id]); });
    std::sort(digest.identity.ops.begin(), digest.identity.ops.end());
    return digest;
  }

  int64_t count_ = 0;
  std::string options_;
  std::string folder_;
  std::vector<RankPart::File> files_;
  std::map<int64_t, std::string> paths_;  // by part
  std::map<int64_t, RankDigest> ranks_;   // by position in the folder
  std::map<int64_t, Failure> left_out_;   // the same
  StringPool names_;
};

}  // namespace

Result<Answer> shard_answer(const TraceInput& folder, const ShardAnswerOptions& options,
                            const AnswerHooks& hooks) {
  if (options.count < 1 || options.index < 1 || options.index > options.count)
    throw Error(fmt::format("[shard] expected a part from 1/{0} to {0}/{0}, got {1}/{0}",
                            options.count, options.index));
  if (!is_folder(folder))
    throw Error(
        fmt::format("{}: expected a folder with one trace for each rank, to read a part of "
                    "it, got a file",
                    folder.path));
  const std::vector<std::string> paths = traces_of_folder(folder.path);
  RankPart part;
  part.index = options.index;
  part.count = options.count;
  part.options = options_text(folder, options.modules);
  part.folder = folder.path;
  part.files = files_of(paths);
  std::vector<std::string> own;
  std::vector<int64_t> positions;
  for (int64_t i = options.index - 1; i < std::ssize(paths); i += options.count) {
    own.push_back(paths[static_cast<size_t>(i)]);
    positions.push_back(i);
  }
  Result<RankReading> read =
      read_digests(folder, own, std::vector<size_t>(positions.begin(), positions.end()),
                   paths.size(), frames_for(options.modules), hooks);
  if (!read) return read.failure();
  part.digests = std::move(read.value().folder.digests);
  for (const size_t i : read.value().read) part.positions.push_back(positions[i]);
  for (const auto& [i, failure] : read.value().left_out) {
    warn(hooks, failure.message + "; left out");
    part.left_out.push_back({positions[i], static_cast<int64_t>(failure.code), failure.message});
  }
  const std::string path = (std::filesystem::path(options.folder) /
                            fmt::format("part-{}-of-{}{}", options.index, options.count, kPartEnd))
                               .string();
  const std::string bytes = part_bytes(part);
  if (const Status written = write_file(path, bytes); !written) return written.failure();
  Document document = {
      preformatted(fmt::format("{}: {} of {} traces, {}\n", path, own.size(), paths.size(),
                               format_bytes(static_cast<double>(bytes.size()))))};
  document.facts = {{"file", path},
                    {"bytes", static_cast<int64_t>(bytes.size())},
                    {"part", options.index},
                    {"parts", options.count},
                    {"traces", static_cast<int64_t>(own.size())},
                    {"traces_of_all", static_cast<int64_t>(paths.size())}};
  return Answer(std::move(document), nullptr);
}

Result<Answer> merge_answer(const std::vector<std::string>& parts,
                            const MergeAnswerOptions& options, const AnswerHooks& hooks) {
  PartJoiner joiner;
  for (const std::string& path : part_paths(parts)) {
    const Result<std::string> bytes = read_file(path);
    if (!bytes) return bytes.failure();
    Result<RankPart> part = parse_part(bytes.value(), path);
    if (!part) return part.failure();
    joiner.add(std::move(part).value(), path);
    poll(hooks);
  }
  const Result<RankFolder> ranks = std::move(joiner).join(hooks);
  if (!ranks) return ranks.failure();
  auto explanation = std::make_shared<const RanksExplanation>(
      explain_ranks(ranks.value().digests, ranks.value().left_out));
  poll(hooks);
  if (!options.page.empty()) {
    const std::string page = ranks_html_report(
        *explanation, options.title.empty() ? std::string("ranks") : options.title);
    if (const Status written = write_file(options.page, page); !written) return written.failure();
  }
  return Answer(ranks_document(*explanation, options.top), explanation);
}

}  // namespace epilogue::trace
