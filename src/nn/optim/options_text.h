// SPDX-License-Identifier: Apache-2.0
// Numbers of a state as text that reads back exactly, and checks that optimizers share.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace epilogue::optim {

using Text = std::map<std::string, std::string>;

std::string number_text(double value);  // the shortest that reads back
std::string number_text(int64_t value);
std::string bool_text(bool value);  // "true", "false"

// The value of a key. Throw Error "[load_state_dict] expected ..., got ..." where it is missing or
// not of the type.
double number_of(const Text& text, const std::string& key);
int64_t integer_of(const Text& text, const std::string& key);
bool bool_of(const Text& text, const std::string& key);

// Throws Error "[AdamW] expected <meaning>, got <value>" unless `holds`.
void require_option(bool holds, std::string_view class_name, std::string_view meaning,
                    double value);
// Throws Error "[AdamW] expected a finite <name> >= 0, got <value>" unless it is one.
void require_not_negative(std::string_view class_name, std::string_view name, double value);

}  // namespace epilogue::optim
