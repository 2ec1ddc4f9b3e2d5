// SPDX-License-Identifier: Apache-2.0
// Small files for the tests of io: a folder of their own, bytes written and read back.
#pragma once

#include <unistd.h>

#include "support/test.h"

namespace epilogue::io_test {

// A new folder of this test that is removed at the end.
class TempFolder {
 public:
  TempFolder() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    for (char& c : name)
      if (c == '/') c = '_';
    static int count = 0;
    path_ = testing::TempDir() + "epilogue_io_" + std::to_string(getpid()) + "_" + name + "_" +
            std::to_string(count++);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.flush().good()) << path;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A safetensors file: the length of `json`, `json`, `data`.
inline std::string safetensors_bytes(std::string_view json, std::string_view data = {}) {
  const uint64_t length = json.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out.append(json).append(data);
}

}  // namespace epilogue::io_test
