// SPDX-License-Identifier: Apache-2.0
// Errors cross the library's boundary with their types and their words.
#include <epilogue/epilogue.h>
#include <epilogue/trace.h>

#include <cstring>

int main() {
  using namespace epilogue;
  bool is_named = false;
  try {
    mm(ones({5, 7}), ones({3, 2}));
  } catch (const Error& error) {
    is_named = std::strstr(error.what(), "got f32[5, 7] and f32[3, 2]") != nullptr;
  }
  const auto missing = SafetensorsFile::open("/no/such/file.safetensors");
  return is_named && !missing.ok() ? 0 : 1;
}
