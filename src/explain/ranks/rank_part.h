// SPDX-License-Identifier: Apache-2.0
// A part of a run's ranks, as a file: what `epilogue explain --shard` writes and `epilogue merge`
// joins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/base/result.h"
#include "explain/ranks/rank_digest.h"

namespace epilogue::trace {

// The traces of a folder at the positions index - 1, index - 1 + count, ... in the order of their
// names. The file is gzip of a line that names the format, then the fields in their order: whole
// numbers as LEB128 (signed ones in zigzag), doubles as their 8 bytes, texts and lists behind their
// length. Names of kernels and ops are numbers of one table of texts. Nothing is rounded, so that a
// run joined from parts is the run in one piece, bit for bit.
struct RankPart {
  struct File {
    std::string name;
    int64_t bytes = 0;
    bool operator==(const File&) const = default;
  };
  struct LeftOut {
    int64_t position = 0;
    int64_t code = 0;  // FailureCode
    std::string message;
  };

  int64_t index = 1;
  int64_t count = 1;
  std::string options;             // those that decide what a digest holds; alike in all parts
  std::string folder;              // as the command was given it
  std::vector<File> files;         // all of the folder, by name; alike in all parts
  std::vector<int64_t> positions;  // of the digests, in `files`
  RankDigests digests;
  std::vector<LeftOut> left_out;  // files of this part that are no traces
};

// What the file holds.
std::string part_bytes(RankPart& part);
// Fails (not_a_trace), with one line that starts with `name`, if the bytes are no part, or one of
// another version of the format, cut short or damaged.
Result<RankPart> parse_part(std::string_view bytes, const std::string& name);

}  // namespace epilogue::trace
