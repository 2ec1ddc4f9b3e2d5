// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/nvrtc.h"

#include <nvrtc.h>

#include <vector>

#include "epilogue/base/error.h"

namespace epilogue::cuda {

DynamicLibrary open_nvrtc() {
  return {{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
          "a fused kernel",
          EPILOGUE_CUDA_LIBRARY_DIR};
}

namespace {

class Nvrtc {
 public:
  static const Nvrtc& get() {
    static const auto* const library = new Nvrtc;
    return *library;
  }

  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcGetErrorString) error_string = nullptr;

  std::string version_text() const {
    int major = 0;
    int minor = 0;
    check(version(&major, &minor), "nvrtcVersion");
    return std::to_string(major) + "." + std::to_string(minor);
  }

  void check(nvrtcResult status, const char* call) const {
    if (status != NVRTC_SUCCESS)
      throw Error(std::string("[cuda] ") + call + ": " + error_string(status));
  }

 private:
  Nvrtc() : library_(open_nvrtc()) {
    library_.load(version, "nvrtcVersion");
    library_.load(create, "nvrtcCreateProgram");
    library_.load(destroy, "nvrtcDestroyProgram");
    library_.load(compile, "nvrtcCompileProgram");
    library_.load(log_size, "nvrtcGetProgramLogSize");
    library_.load(log, "nvrtcGetProgramLog");
    library_.load(cubin_size, "nvrtcGetCUBINSize");
    library_.load(cubin, "nvrtcGetCUBIN");
    library_.load(error_string, "nvrtcGetErrorString");
    library_.load_beside("libnvrtc-builtins.so." + version_text());
  }
  DynamicLibrary library_;
};

class Program {
 public:
  explicit Program(const std::string& source) {
    nvrtc_.check(
        nvrtc_.create(&program_, source.c_str(), "epilogue_program.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  }
  ~Program() { nvrtc_.destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<const char*>& options) {
    return nvrtc_.compile(program_, static_cast<int>(options.size()), options.data());
  }
  std::string log() const {
    size_t size = 0;
    nvrtc_.check(nvrtc_.log_size(program_, &size), "nvrtcGetProgramLogSize");
    std::string text(size, '\0');
    nvrtc_.check(nvrtc_.log(program_, text.data()), "nvrtcGetProgramLog");
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  std::string cubin() const {
    size_t size = 0;
    nvrtc_.check(nvrtc_.cubin_size(program_, &size), "nvrtcGetCUBINSize");
    std::string code(size, '\0');
    nvrtc_.check(nvrtc_.cubin(program_, code.data()), "nvrtcGetCUBIN");
    return code;
  }

 private:
  const Nvrtc& nvrtc_ = Nvrtc::get();
  nvrtcProgram program_ = nullptr;
};

}  // namespace

Compiled compile_source(const std::string& source, int architecture, bool verbose) {
  Program program(source);
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  std::vector<const char*> options = {target.c_str(), "--std=c++17"};
  if (verbose) options.push_back("--ptxas-options=-v");
  if (program.compile(options) != NVRTC_SUCCESS)
    throw Error("[cuda] a generated program does not compile:\n" + program.log());
  return {program.cubin(), program.log()};
}

std::string nvrtc_version() { return Nvrtc::get().version_text(); }

}  // namespace epilogue::cuda
