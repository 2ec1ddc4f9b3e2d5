// SPDX-License-Identifier: Apache-2.0
#include "io/json_handler.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/message.h"

namespace epilogue::io {
namespace {

// The reference reader (serde_json) gives up at the same depth.
constexpr int kMaxDepth = 128;

// nlohmann's SAX parser keeps its own stack of bits, so depth costs heap, not call stack.
class Adapter final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Adapter(JsonHandler& handler) : handler_(handler) {}
  bool null() override { return send(JsonEvent::null); }
  bool boolean(bool) override { return send(JsonEvent::boolean); }
  bool number_integer(number_integer_t) override { return send(JsonEvent::negative); }
  bool number_unsigned(number_unsigned_t n) override { return send(JsonEvent::number, n); }
  bool number_float(number_float_t, const string_t&) override { return send(JsonEvent::fraction); }
  bool string(string_t& text) override { return send(JsonEvent::string, 0, &text); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return send(JsonEvent::open_object); }
  bool key(string_t& text) override { return send(JsonEvent::key, 0, &text); }
  bool end_object() override { return send(JsonEvent::close_object); }
  bool start_array(std::size_t) override { return send(JsonEvent::open_array); }
  bool end_array() override { return send(JsonEvent::close_array); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception&) override {
    return handler_.fail_syntax(fmt::format("expected valid JSON, got an error at byte {} near {}",
                                            position, in_quotes(token)));
  }

 private:
  bool send(JsonEvent::Kind kind, uint64_t number = 0, std::string* text = nullptr) {
    return handler_.dispatch({kind, number, text});
  }
  JsonHandler& handler_;
};

std::string in_words(const JsonEvent& event) {
  switch (event.kind) {
    case JsonEvent::null: return "null";
    case JsonEvent::boolean: return "a boolean";
    case JsonEvent::negative: return "a negative number";
    case JsonEvent::fraction: return "a fraction, an exponent or an integer beyond 64 bits";
    case JsonEvent::number: return fmt::format("the number {}", event.number_value);
    case JsonEvent::string: return "the string " + in_quotes(*event.text);
    case JsonEvent::key: return "the key " + in_quotes(*event.text);
    case JsonEvent::open_object: return "an object";
    case JsonEvent::close_object: return "the object's end";
    case JsonEvent::open_array: return "an array";
    case JsonEvent::close_array: return "the array's end";
  }
  return "nothing";
}

}  // namespace

Status JsonHandler::parse(std::string_view text) {
  // nlohmann takes a NUL for the end of the text: what follows it would go unread.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail_syntax(fmt::format("expected valid JSON, got a NUL at byte {}", nul));
    return failure_;
  }
  Adapter adapter(*this);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &adapter)) return failure_;
  return ok_status();
}

bool JsonHandler::dispatch(const JsonEvent& event) {
  return skip_depth_ > 0 ? skip_value(event) : on(event);
}

bool JsonHandler::skip_value(const JsonEvent& event) {
  if (event.kind == JsonEvent::open_object || event.kind == JsonEvent::open_array) ++skip_depth_;
  if (event.kind == JsonEvent::close_object || event.kind == JsonEvent::close_array) --skip_depth_;
  if (skip_depth_ > kMaxDepth)
    return fail_syntax(fmt::format("expected at most {} levels of nesting, got more", kMaxDepth));
  return true;
}

bool JsonHandler::fail(FailureCode code, std::string_view detail) {
  failure_ = io_failure(file_, code, detail);
  return false;
}

bool JsonHandler::unexpected(std::string_view where, std::string_view what,
                             const JsonEvent& event) {
  return fail_syntax(fmt::format("{}: expected {}, got {}", where, what, in_words(event)));
}

}  // namespace epilogue::io
