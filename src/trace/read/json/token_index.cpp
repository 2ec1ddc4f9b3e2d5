// SPDX-License-Identifier: Apache-2.0
#include "trace/read/json/token_index.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "base/assert.h"
#include "epilogue/base/error.h"

namespace epilogue::trace {
namespace {

constexpr size_t kMinCapacity = size_t{1} << 16;
// stage2 is never run: the depth it would need is of no account.
constexpr size_t kDepth = 1;

}  // namespace

struct TokenIndex::State {
  std::unique_ptr<simdjson::internal::dom_parser_implementation> parser;
  size_t capacity = 0;
  size_t tokens = 0;
};

TokenIndex::TokenIndex() : state_(std::make_unique<State>()) {}
TokenIndex::~TokenIndex() = default;

bool TokenIndex::build(std::string_view text) {
  EPI_ASSERT(text.size() < std::numeric_limits<uint32_t>::max(), "token offsets are 32 bits");
  State& s = *state_;
  if (s.parser == nullptr || text.size() > s.capacity) {
    const size_t capacity = std::max({text.size(), s.capacity * 2, kMinCapacity});
    const auto& implementation = simdjson::get_active_implementation();
    if (implementation->create_dom_parser_implementation(capacity, kDepth, s.parser) !=
        simdjson::SUCCESS)
      throw Error("[trace] expected memory for an index of a JSON text, got none");
    s.capacity = capacity;
  }
  s.tokens = 0;
  if (text.empty()) {
    s.parser->structural_indexes[0] = 0;
    return true;
  }
  const auto error = s.parser->stage1(reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                                      simdjson::stage1_mode::regular);
  if (error == simdjson::EMPTY) {  // nothing but white space
    s.parser->structural_indexes[0] = static_cast<uint32_t>(text.size());
    return true;
  }
  if (error != simdjson::SUCCESS) return false;
  s.tokens = s.parser->n_structural_indexes;
  return true;
}

const uint32_t* TokenIndex::begin() const { return state_->parser->structural_indexes.get(); }
size_t TokenIndex::size() const { return state_->tokens; }

}  // namespace epilogue::trace
