// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/cpu_detect.h"

namespace epilogue {
namespace {

constexpr int kUnset = -1;
std::atomic<int> active{kUnset};

std::string unsupported(Isa isa) {
  return "this machine has " + std::string(isa_name(detected_isa())) + ", not " +
         std::string(isa_name(isa));
}

Isa from_environment() {
  const char* wanted = std::getenv("EPILOGUE_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected_isa();
  const Isa isa = parse_isa(wanted).value();
  if (isa > detected_isa()) throw Error("[EPILOGUE_ISA] " + unsupported(isa));
  return isa;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::amx: return "amx";
  }
  return "unknown";
}

Result<Isa> parse_isa(std::string_view name) {
  for (Isa isa : kIsas)
    if (isa_name(isa) == name) return isa;
  return Failure{"UnknownIsa", "[isa] expected baseline, avx2, avx512, avx512_bf16 or amx, got '" +
                                   std::string(name) + "'"};
}

Isa detected_isa() {
  static const Isa isa = detect_isa();
  return isa;
}

Isa active_isa() {
  const int now = active.load(std::memory_order_acquire);
  if (now != kUnset) return static_cast<Isa>(now);
  const Isa isa = from_environment();
  active.store(static_cast<int>(isa), std::memory_order_release);
  return isa;
}

void set_active_isa(Isa isa) {
  if (isa > detected_isa()) throw Error("[set_active_isa] " + unsupported(isa));
  active.store(static_cast<int>(isa), std::memory_order_release);
}

std::string_view cpu_model_name() {
  static const std::string name = [] {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("model name")) {
        const size_t colon = line.find(": ");
        if (colon != std::string::npos) return line.substr(colon + 2);
      }
    return std::string("unknown CPU");
  }();
  return name;
}

}  // namespace epilogue
