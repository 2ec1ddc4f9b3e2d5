# cmake -DOUT=assets.cpp -DTEMPLATE=page.html -DSTYLE=style.css "-DSCRIPTS=a.js,b.js" -P embed_page.cmake
# Writes the page's files into a C++ source, as raw strings, with their SHA-256 sums: the page's
# Content-Security-Policy names them, so that nothing else can run or style.

set(delimiter "page")
# Compilers limit the length of one string literal (gcc: none; the standard promises 64 KiB).
set(piece_chars 12000)

function(append_asset function_name text)
  if(text MATCHES "\\)${delimiter}\"")
    message(FATAL_ERROR "${function_name}: the text contains the end of its raw string")
  endif()
  string(SHA256 sum "${text}")
  string(LENGTH "${text}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} ${piece_chars} piece)
    string(APPEND pieces "      R\"${delimiter}(${piece})${delimiter}\",\n")
    math(EXPR at "${at} + ${piece_chars}")
  endwhile()
  string(APPEND source "const PageAsset& ${function_name}() {\n"
         "  static const PageAsset kAsset = {joined({\n${pieces}  }), \"${sum}\"};\n"
         "  return kAsset;\n}\n\n")
  set(source "${source}" PARENT_SCOPE)
endfunction()

file(READ "${TEMPLATE}" template)
file(READ "${STYLE}" style)
set(script "\"use strict\";\n")
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
foreach(path IN LISTS SCRIPTS)
  file(READ "${path}" text)
  string(APPEND script "${text}")
endforeach()
string(TOLOWER "${script}" lower)
if(lower MATCHES "</script|<!--")
  message(FATAL_ERROR "a script contains text that ends or hides a <script> element")
endif()

set(source "// SPDX-License-Identifier: Apache-2.0
// Written by cmake/embed_page.cmake.
#include \"explain/render/html/assets.h\"

#include <initializer_list>

namespace epilogue::trace {
namespace {

std::string joined(std::initializer_list<std::string_view> pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text += piece;
  return text;
}

}  // namespace

")
append_asset(page_template "${template}")
append_asset(page_style "${style}")
append_asset(page_script "${script}")
string(APPEND source "}  // namespace epilogue::trace\n")
file(WRITE "${OUT}" "${source}")
