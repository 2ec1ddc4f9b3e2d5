// SPDX-License-Identifier: Apache-2.0
// The files of the page, as the build embeds them (cmake/embed_page.cmake).
#pragma once

#include <string>
#include <string_view>

namespace epilogue::trace {

struct PageAsset {
  std::string text;
  std::string_view sha256_hex;  // of the text
};

// page.html, with {{name}} where a value goes.
const PageAsset& page_template();
const PageAsset& page_style();
// All scripts, one after the other.
const PageAsset& page_script();

}  // namespace epilogue::trace
