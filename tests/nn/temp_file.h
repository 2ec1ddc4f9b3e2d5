// SPDX-License-Identifier: Apache-2.0
// A file name of this test that is removed at the end.
#pragma once

#include <unistd.h>

#include "support/test.h"

namespace epilogue::nn {

class TempFile {
 public:
  TempFile() {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    for (char& c : name)
      if (c == '/') c = '_';  // names of parameterised tests
    path_ =
        testing::TempDir() + "epilogue_" + std::to_string(getpid()) + "_" + name + ".safetensors";
  }
  ~TempFile() { std::remove(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace epilogue::nn
