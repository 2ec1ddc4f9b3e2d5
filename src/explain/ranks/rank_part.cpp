// SPDX-License-Identifier: Apache-2.0
#include "explain/ranks/rank_part.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "trace/gzip_bytes.h"
#include "trace/read/byte_source.h"

namespace epilogue::trace {
namespace {

// One number for the format: a digest that gets, loses or changes a field raises it.
constexpr std::string_view kMagic = "epilogue part 3\n";

class DigestWriter {
 public:
  explicit DigestWriter(std::string& out) : out_(out) {}
  static constexpr bool kReads = false;

  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  void bytes(std::string_view text) {
    number(text.size());
    out_ += text;
  }
  void raw(uint64_t bits) {
    for (int i = 0; i < 8; ++i) out_ += static_cast<char>(bits >> (8 * i));
  }

 private:
  std::string& out_;
};

// After the first fault everything reads as 0 and empty.
class DigestReader {
 public:
  explicit DigestReader(std::string_view text) : text_(text) {}
  static constexpr bool kReads = true;

  bool is_fine() const { return is_fine_; }
  bool is_at_end() const { return is_fine_ && text_.empty(); }
  void fail() {
    is_fine_ = false;
    text_ = {};
  }
  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (text_.empty()) break;
      const auto byte = static_cast<unsigned char>(text_.front());
      text_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  std::string_view bytes() {
    const uint64_t size = number();
    if (size > text_.size()) {
      fail();
      return {};
    }
    const std::string_view read = text_.substr(0, size);
    text_.remove_prefix(size);
    return read;
  }
  uint64_t raw() {
    if (text_.size() < 8) {
      fail();
      return 0;
    }
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i)
      bits |= static_cast<uint64_t>(static_cast<unsigned char>(text_[static_cast<size_t>(i)]))
              << (8 * i);
    text_.remove_prefix(8);
    return bits;
  }
  // The length of a list: each element takes a byte or more, so that no damaged length takes
  // memory.
  size_t length() {
    const uint64_t size = number();
    if (size > text_.size()) fail();
    return is_fine_ ? size : 0;
  }

 private:
  std::string_view text_;
  bool is_fine_ = true;
};

// Each field() writes its value, or reads it in its place: one description serves both.

template <class Archive, class T>
requires(std::integral<T> || std::is_enum_v<T>) void field(Archive& a, T& value) {
  if constexpr (Archive::kReads) {
    const uint64_t zigzag = a.number();
    value = static_cast<T>(static_cast<int64_t>(zigzag >> 1) ^ -static_cast<int64_t>(zigzag & 1));
  } else {
    const auto number = static_cast<int64_t>(value);
    a.number(static_cast<uint64_t>(number) << 1 ^ static_cast<uint64_t>(number >> 63));
  }
}

template <class Archive>
void field(Archive& a, double& value) {
  if constexpr (Archive::kReads)
    value = std::bit_cast<double>(a.raw());
  else
    a.raw(std::bit_cast<uint64_t>(value));
}

template <class Archive>
void field(Archive& a, std::string& value) {
  if constexpr (Archive::kReads)
    value = a.bytes();
  else
    a.bytes(value);
}

template <class Archive, class T>
void field(Archive& a, std::optional<T>& value) {
  bool has_value = value.has_value();
  field(a, has_value);
  if constexpr (Archive::kReads)
    if (has_value) value.emplace();
  if (has_value) field(a, *value);
}

template <class Archive, class T>
void field(Archive& a, std::vector<T>& list) {
  if constexpr (Archive::kReads) {
    const size_t size = a.length();
    for (size_t i = 0; i < size && a.is_fine(); ++i) field(a, list.emplace_back());
  } else {
    a.number(list.size());
    for (T& item : list) field(a, item);
  }
}

template <class Archive, class K, class V>
void field(Archive& a, std::map<K, V>& map) {
  if constexpr (Archive::kReads) {
    const size_t size = a.length();
    for (size_t i = 0; i < size && a.is_fine(); ++i) {
      K key{};
      field(a, key);
      field(a, map[std::move(key)]);
    }
  } else {
    a.number(map.size());
    for (auto& [key, value] : map) {
      K copy = key;
      field(a, copy);
      field(a, value);
    }
  }
}

template <class Archive, class... T>
void fields(Archive& a, T&... values) {
  (field(a, values), ...);
}

// Each names all fields of its struct: one that gains or loses a field no longer compiles here.
#define EPILOGUE_FIELDS(Type, ...)      \
  template <class Archive>              \
  void field(Archive& a, Type& value) { \
    auto& [__VA_ARGS__] = value;        \
    fields(a, __VA_ARGS__);             \
  }

EPILOGUE_FIELDS(Interval, begin, end)
EPILOGUE_FIELDS(RankIdentity, path, rank, world_size, ops, window)
EPILOGUE_FIELDS(Distribution, count, min, median, p95, max, total)
EPILOGUE_FIELDS(CollectiveRates, count, algbw, busbw)
EPILOGUE_FIELDS(CollectiveStats, name, bytes, time, overlap, exposed, rates)
EPILOGUE_FIELDS(RankCollectives, rank, kinds, communication, overlap, span, ddp_forwards,
                optimizer_steps, after_steps, after_steps_ns)
EPILOGUE_FIELDS(CollectiveKey, name, group_name, group)
EPILOGUE_FIELDS(CollectiveRun, dur, message_bytes, exposed, step)
EPILOGUE_FIELDS(CollectiveRuns, group_ranks, runs)
EPILOGUE_FIELDS(DeviceTime, compute, memory, communication, idle)
EPILOGUE_FIELDS(RankKernel, name, work, count, total)
EPILOGUE_FIELDS(ProcessGroup, description, ranks, size)
EPILOGUE_FIELDS(RankFinding, id, severity, title, evidence, saving, cost, confidence, action, where)
EPILOGUE_FIELDS(RankDigest, identity, is_truncated, has_kernels, bound, busy_pct, collectives, runs,
                step_ns, time, kernels, host_ns, groups, is_explained, findings)
EPILOGUE_FIELDS(RankPart::File, name, bytes)
EPILOGUE_FIELDS(RankPart::LeftOut, position, code, message)
#undef EPILOGUE_FIELDS
// The names of the digests go apart.
template <class Archive>
void field(Archive& a, RankPart& p) {
  auto& [index, count, options, folder, files, positions, digests, left_out] = p;
  fields(a, index, count, options, folder, files, positions, digests.ranks, left_out);
}

// The names that the part uses, and in the digests numbers in that list.
std::vector<std::string> number_names(RankPart& part) {
  std::map<StringId, StringId> numbers;
  std::vector<std::string> names;  // each once
  const auto renumber = [&](StringId& id) {
    const auto [found, is_new] = numbers.emplace(id, static_cast<StringId>(names.size()));
    if (is_new) names.emplace_back(part.digests.names[id]);
    id = found->second;
  };
  for (RankDigest& digest : part.digests.ranks) visit_names(digest, renumber);
  return names;
}

bool name_numbers(RankPart& part, const std::vector<std::string>& names) {
  std::vector<StringId> ids;
  ids.reserve(names.size());
  for (const std::string& name : names) ids.push_back(part.digests.names.intern(name));
  bool is_fine = true;
  const auto rename = [&](StringId& id) {
    is_fine &= id < ids.size();
    id = is_fine ? ids[id] : 0;
  };
  for (RankDigest& digest : part.digests.ranks) {
    visit_names(digest, rename);
    for (const RankKernel& kernel : digest.kernels)
      is_fine &= static_cast<size_t>(kernel.work) < kRankWorks;
    is_fine &= !digest.bound || *digest.bound <= Bound::queue;
  }
  return is_fine;
}

// Positions are those of the part, each once.
bool has_its_files(const RankPart& part) {
  if (part.count < 1 || part.index < 1 || part.index > part.count) return false;
  std::vector<int64_t> positions = part.positions;
  for (const RankPart::LeftOut& left_out : part.left_out) positions.push_back(left_out.position);
  std::sort(positions.begin(), positions.end());
  int64_t expected = part.index - 1;
  for (const int64_t position : positions) {
    if (position != expected) return false;
    expected += part.count;
  }
  return part.positions.size() == part.digests.ranks.size() && expected >= std::ssize(part.files) &&
         (positions.empty() || positions.back() < std::ssize(part.files));
}

// The bytes behind the compression; empty if they are damaged.
std::string inflated(std::string_view bytes) {
  const std::unique_ptr<ByteSource> source = memory_source(bytes);
  std::string text;
  constexpr size_t kPiece = size_t{1} << 20;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const Result<size_t> read = source->read(std::span(text).subspan(before));
    text.resize(before + (read ? read.value() : 0));
    if (text.size() < before + kPiece) break;
  }
  const StreamFaults faults = source->faults();
  const bool is_whole = source->is_gzip() && !faults.is_truncated && !faults.has_bad_checksum &&
                        !faults.has_trailing_bytes;
  return is_whole ? text : std::string();
}

}  // namespace

std::string part_bytes(RankPart& part) {
  std::string text(kMagic);
  DigestWriter writer(text);
  std::vector<std::string> names = number_names(part);
  fields(writer, names, part);
  name_numbers(part, names);
  return *gzip_bytes(text);
}

Result<RankPart> parse_part(std::string_view bytes, const std::string& name) {
  const auto failure = [&](std::string_view what) {
    return Failure{
        FailureCode::not_a_trace,
        name + ": expected a part that epilogue explain --shard wrote, got " + std::string(what)};
  };
  const std::string text = inflated(bytes);
  constexpr std::string_view kAnyVersion = "epilogue part ";
  if (!text.starts_with(kMagic))
    return failure(text.starts_with(kAnyVersion) ? "one of another version of epilogue"
                   : text.empty()                ? "something else, or a damaged one"
                                                 : "something else");
  DigestReader reader(std::string_view(text).substr(kMagic.size()));
  std::vector<std::string> names;
  RankPart part;
  fields(reader, names, part);
  if (!reader.is_at_end() || !has_its_files(part) || !name_numbers(part, names))
    return failure("a damaged one");
  return part;
}

}  // namespace epilogue::trace
