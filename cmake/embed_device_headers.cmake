# cmake -DOUT=device_headers.cpp "-DHEADERS=a.cuh,b.cuh" -P embed_device_headers.cmake
# Writes the headers' text into a C++ source: generated programs include it.

string(REPLACE "," ";" HEADERS "${HEADERS}")
set(delimiter "device")
set(text "")
foreach(path IN LISTS HEADERS)
  file(READ "${path}" header)
  string(REPLACE "#pragma once\n" "" header "${header}")
  # program_source() writes what is needed of it.
  string(REPLACE "#include \"pointwise/pointwise_fn.h\"\n" "" header "${header}")
  if(header MATCHES "\\)${delimiter}\"" OR header MATCHES "#include")
    message(FATAL_ERROR "${path}: expected a header that stands alone")
  endif()
  string(APPEND text "${header}")
endforeach()
file(WRITE "${OUT}" "// SPDX-License-Identifier: Apache-2.0
// Written by cmake/embed_device_headers.cmake.
#include \"backend/cuda/program_source.h\"

namespace epilogue::cuda {

std::string_view device_header_text() {
  return R\"${delimiter}(${text})${delimiter}\";
}

}  // namespace epilogue::cuda
")
