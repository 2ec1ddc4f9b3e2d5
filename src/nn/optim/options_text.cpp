// SPDX-License-Identifier: Apache-2.0
#include "nn/optim/options_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "epilogue/base/error.h"

namespace epilogue::optim {
namespace {

const std::string& value_of(const Text& text, const std::string& key) {
  const auto found = text.find(key);
  if (found == text.end())
    throw Error("[load_state_dict] expected \"" + key + "\", got no such key");
  return found->second;
}

[[noreturn]] void fail(const std::string& key, const char* what, const std::string& got) {
  throw Error("[load_state_dict] expected " + std::string(what) + " for \"" + key + "\", got \"" +
              got + "\"");
}

template <class Number>
std::string shortest(Number value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

template <class Number>
Number parse(const Text& text, const std::string& key, const char* what) {
  const std::string& value = value_of(text, key);
  Number number{};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) fail(key, what, value);
  return number;
}

}  // namespace

std::string number_text(double value) { return shortest(value); }
std::string number_text(int64_t value) { return shortest(value); }
std::string bool_text(bool value) { return value ? "true" : "false"; }

double number_of(const Text& text, const std::string& key) {
  return parse<double>(text, key, "a number");
}
int64_t integer_of(const Text& text, const std::string& key) {
  return parse<int64_t>(text, key, "an integer");
}
bool bool_of(const Text& text, const std::string& key) {
  const std::string& value = value_of(text, key);
  if (value != "true" && value != "false") fail(key, "true or false", value);
  return value == "true";
}

void require_option(bool holds, std::string_view class_name, std::string_view meaning,
                    double value) {
  if (!holds)
    throw Error("[" + std::string(class_name) + "] expected " + std::string(meaning) + ", got " +
                number_text(value));
}

void require_not_negative(std::string_view class_name, std::string_view name, double value) {
  require_option(std::isfinite(value) && value >= 0, class_name,
                 "a finite " + std::string(name) + " >= 0", value);
}

}  // namespace epilogue::optim
