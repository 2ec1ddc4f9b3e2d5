// SPDX-License-Identifier: Apache-2.0
#include "trace/read/inputs_parser.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "trace/read/json/json_string.h"

namespace epilogue::trace {
namespace {

// One argument's sizes or strides.
struct Sizes {
  std::vector<int64_t> ints;
  std::vector<std::vector<int64_t>> lists;
  bool is_list = false;
};

class ListReader {
 public:
  explicit ListReader(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool next_is(char c) {
    skip_space();
    return !text_.empty() && text_.front() == c;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }
  bool take_int(int64_t& value) {
    skip_space();
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return true;
  }
  bool take_string(std::string& value) {
    if (!take('"')) return false;
    size_t end = 0;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return false;
    append_decoded(value, text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return true;
  }
  // [each, each, ...]
  template <class Each>
  bool take_list(Each each) {
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (!each()) return false;
    } while (take(','));
    return take(']');
  }

 private:
  void skip_space() {
    const size_t used = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(std::min(used, text_.size()));
  }
  std::string_view text_;
};

// Tensor lists are one level deeper; nothing is deeper than that.
bool take_sizes(ListReader& reader, Sizes& sizes) {
  const auto take_ints = [&](std::vector<int64_t>& ints) {
    return reader.take_list([&] { return reader.take_int(ints.emplace_back()); });
  };
  return reader.take_list([&] {
    if (!reader.next_is('[')) return !sizes.is_list && reader.take_int(sizes.ints.emplace_back());
    sizes.is_list = true;
    return sizes.ints.empty() && take_ints(sizes.lists.emplace_back());
  });
}

bool parse_sizes(std::string_view text, std::vector<Sizes>& out) {
  if (text.empty()) return true;
  ListReader reader(text);
  return reader.take_list([&] { return take_sizes(reader, out.emplace_back()); }) &&
         reader.at_end();
}

bool parse_strings(std::string_view text, std::vector<std::string>& out) {
  if (text.empty()) return true;
  ListReader reader(text);
  return reader.take_list([&] { return reader.take_string(out.emplace_back()); }) &&
         reader.at_end();
}

void set_sizes(OpInput& input, Sizes& sizes, std::vector<int64_t> OpInput::*member) {
  if (!sizes.is_list) {
    input.*member = std::move(sizes.ints);
    return;
  }
  input.is_list = true;
  if (input.list.size() < sizes.lists.size()) input.list.resize(sizes.lists.size());
  for (size_t i = 0; i < sizes.lists.size(); ++i) input.list[i].*member = std::move(sizes.lists[i]);
}

}  // namespace

std::optional<std::vector<OpInput>> parse_inputs(const InputTexts& texts) {
  std::vector<Sizes> dims;
  std::vector<Sizes> strides;
  std::vector<std::string> types;
  std::vector<std::string> concrete;
  if (!parse_sizes(texts.dims, dims) || !parse_sizes(texts.strides, strides) ||
      !parse_strings(texts.types, types) || !parse_strings(texts.concrete, concrete))
    return std::nullopt;
  std::vector<OpInput> inputs(
      std::max({dims.size(), strides.size(), types.size(), concrete.size()}));
  for (size_t i = 0; i < inputs.size(); ++i) {
    OpInput& input = inputs[i];
    if (i < types.size()) input.type = std::move(types[i]);
    if (i < concrete.size()) input.concrete = std::move(concrete[i]);
    input.is_list = input.type == "TensorList";
    if (i < dims.size()) set_sizes(input, dims[i], &OpInput::dims);
    if (i < strides.size()) set_sizes(input, strides[i], &OpInput::strides);
  }
  return inputs;
}

}  // namespace epilogue::trace
