// SPDX-License-Identifier: Apache-2.0
// The features of this processor, and those among them that kernels use.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "epilogue/base/result.h"

namespace epilogue {

// An extension that kernels ask for. Extensions are not ordered: a processor may have
// avx512_vnni without avx512_bf16, and a virtual machine can mask any of them.
enum class CpuFeature : uint8_t {
  avx2,         // with FMA and F16C
  avx512,       // F, BW, CD, DQ and VL
  avx512_vnni,  // dot products of 8- and 16-bit integers
  avx_vnni,     // the same with vectors of AVX2
  avx512_bf16,  // dot products of pairs of bf16
  amx_bf16,     // tiles of bf16, with memory for them granted by the operating system
  amx_int8,     // and of 8-bit integers
};

class CpuFeatures {
 public:
  constexpr CpuFeatures() = default;
  constexpr CpuFeatures(std::initializer_list<CpuFeature> list) {
    for (const CpuFeature f : list) bits_ |= bit(f);
  }
  constexpr bool has(CpuFeature f) const { return (bits_ & bit(f)) != 0; }
  constexpr bool has_all(CpuFeatures other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr CpuFeatures operator&(CpuFeatures other) const {
    other.bits_ &= bits_;
    return other;
  }
  constexpr CpuFeatures operator|(CpuFeatures other) const {
    other.bits_ |= bits_;
    return other;
  }
  constexpr bool operator==(const CpuFeatures&) const = default;

  // One bit per feature, to keep a set in an atomic.
  constexpr uint32_t bits() const { return bits_; }
  static constexpr CpuFeatures of_bits(uint32_t bits) {
    CpuFeatures set;
    set.bits_ = bits;
    return set;
  }

 private:
  static constexpr uint32_t bit(CpuFeature f) { return uint32_t{1} << static_cast<uint32_t>(f); }
  uint32_t bits_ = 0;
};

// A set of features with a name, for EPILOGUE_ISA, traces and tests. Kernels ask for features, not
// for names: there is no order among these.
enum class Isa : uint8_t { baseline, avx2, avx512, avx512_bf16, amx };
inline constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};
bool operator<(Isa, Isa) = delete;
bool operator<=(Isa, Isa) = delete;
bool operator>(Isa, Isa) = delete;
bool operator>=(Isa, Isa) = delete;

struct IsaFeatures {
  Isa isa;
  std::string_view name;
  CpuFeatures needs;  // a machine without these does not have it
  CpuFeatures may;    // these are used too, where a machine has them
};
// All sets; where a machine has several, the last one is the best.
std::span<const IsaFeatures> isa_table();

std::string_view isa_name(Isa isa);
Result<Isa> parse_isa(std::string_view name);

// The features of this processor and operating system.
CpuFeatures detected_features();
// The best set that this machine has.
Isa detected_isa();
// Whether this machine has it.
bool is_available(Isa isa);
// Those that this machine has, in the table's order.
std::span<const Isa> available_isas();

// The set in use: detected_isa(), or what EPILOGUE_ISA or set_active_isa say. An EPILOGUE_ISA that
// is unknown or that the machine lacks makes the first call throw Error.
Isa active_isa();
// For tests and tools; not to be called while kernels run. Throws Error where the machine lacks it.
void set_active_isa(Isa isa);

// The features in use: those of the machine that active_isa() names.
CpuFeatures active_features();
inline bool cpu_has(CpuFeature feature) { return active_features().has(feature); }

std::string_view cpu_model_name();
// Libraries of Intel's choose other kernels on other vendors' CPUs.
bool is_intel_cpu();

}  // namespace epilogue
