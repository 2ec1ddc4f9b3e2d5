// SPDX-License-Identifier: Apache-2.0
#include "explain/products/cpu_families.h"

namespace epilogue::trace {
namespace {

// A product waits for nothing but multiply-adds at best, so that f32 is units x lanes x 2. Sources:
//   [I]   Intel 64 and IA-32 Architectures Optimization Reference Manual: execution units, VNNI
//   [ARK] Intel's product pages: "# of AVX-512 FMA Units", base frequency
//   [AMX] the same manual, Intel AMX: 1024 bf16 and 2048 i8 operations per cycle
//   [A]   AMD Software Optimization Guide for the family: two FMA pipes, their width
//   [ARM] Arm Software Optimization Guide for the core: pipes of FMLA, their width
//   [F]   Fujitsu, A64FX Microarchitecture Manual: two pipes of SVE, 512 bits
// No row of bf16 here rests on a measurement: where a vendor states no rate, it is kRateUnknown.
// The clock is a round number near the base clocks of a family's servers, or what the cloud that
// runs it states. It is said to be assumed wherever it is used.
constexpr double kNo = kNoInstructions;
constexpr double kHas = kRateUnknown;

// clang-format off
constexpr CpuFamily kCpuFamilies[] = {
    // name                             f32 bf16  f16   i8    GHz
    {"Haswell",                         32, kNo,  kNo,  kHas, 2.5},  // [I] 2 x 256 bits
    {"Broadwell",                       32, kNo,  kNo,  kHas, 2.3},  // [I] 2 x 256
    {"Skylake",                         32, kNo,  kNo,  kHas, 3.5},  // [I] 2 x 256; Core, to Comet Lake
    {"Skylake-SP",                      64, kNo,  kNo,  kHas, 2.5},  // [I] [ARK] 2 x 512
    {"Skylake-SP with one FMA unit",    32, kNo,  kNo,  kHas, 2.3},  // [I] [ARK] 1 x 512
    {"Cascade Lake",                    64, kNo,  kNo,  256,  2.6},  // [I] [ARK] 2 x 512, VNNI on both
    {"Cascade Lake with one FMA unit",  32, kNo,  kNo,  128,  2.3},  // [I] [ARK] 1 x 512
    {"Cooper Lake",                     64, kHas, kNo,  256,  2.5},  // [I] [ARK] 2 x 512; AVX512-BF16
    {"Ice Lake-SP",                     64, kNo,  kNo,  256,  2.6},  // [I] [ARK] 2 x 512
    {"Sapphire Rapids",                 64, 1024, 128,  2048, 2.1},  // [I] 2 x 512, AVX512-FP16; [AMX]
    {"Emerald Rapids",                  64, 1024, 128,  2048, 2.3},  // [I] 2 x 512, AVX512-FP16; [AMX]
    {"Granite Rapids",                  64, 1024, kHas, 2048, 2.3},  // [I] 2 x 512; [AMX]; AMX-FP16
    {"Zen",                             16, kNo,  kNo,  kHas, 2.2},  // [A] 17h 00-1F: 2 x 128
    {"Zen 2",                           32, kNo,  kNo,  kHas, 2.4},  // [A] 17h 30-7F: 2 x 256
    {"Zen 3",                           32, kNo,  kNo,  kHas, 2.5},  // [A] 19h 00-5F: 2 x 256
    {"Zen 4",                           32, kHas, kNo,  kHas, 2.6},  // [A] 19h 10-1F: 2 x 256; AVX512-BF16
    {"Zen 5",                           64, kHas, kNo,  kHas, 2.6},  // [A] 1Ah: 2 x 512; AVX512-BF16
    {"Neoverse-N1",                     16, kNo,  32,   kHas, 2.5},  // [ARM] 2 x 128; Graviton2: AWS
    {"Neoverse-V1",                     32, kHas, 64,   kHas, 2.6},  // [ARM] 4 x 128; Graviton3: AWS
    {"Neoverse-N2",                     16, kHas, 32,   kHas, 2.8},  // [ARM] 2 x 128
    {"Neoverse-V2",                     32, kHas, 64,   kHas, 2.8},  // [ARM] 4 x 128
    {"A64FX",                           64, kNo,  128,  kHas, 2.0},  // [F]
};

constexpr std::string_view kWhichSkylake =
    "Skylake Xeons have one or two FMA units: name the product, as in Xeon Gold 6148";
constexpr std::string_view kWhichCascadeLake =
    "Cascade Lake Xeons have one or two FMA units: name the product, as in Xeon Gold 6248";
constexpr std::string_view kApple =
    "Apple publishes no rate of the matrix unit that PyTorch's products run on";

// Numbers of products: Intel's and AMD's naming guides. AMD: the last digit is the generation, also
// of the clouds' own (7R13, 9V74).
constexpr CpuProduct kCpuProducts[] = {
    {{"e5", "####*", "v3"}, "Haswell"},   {{"e7", "####*", "v3"}, "Haswell"},
    {{"e3", "####*", "v3"}, "Haswell"},   {{"core", "i#", "4###*"}, "Haswell"},
    {{"e5", "####*", "v4"}, "Broadwell"}, {{"e7", "####*", "v4"}, "Broadwell"},
    {{"e3", "####*", "v4"}, "Broadwell"},
    {{"e3", "####*", "v5"}, "Skylake"},   {{"e3", "####*", "v6"}, "Skylake"},
    // Core X: other cores, and one or two units.
    {{"core", "i#", "####x*"}, "", "Core X processors have other cores than their numbers say"},
    {{"core", "i#", "6###*"}, "Skylake"}, {{"core", "i#", "7###*"}, "Skylake"},
    {{"core", "i#", "8###*"}, "Skylake"}, {{"core", "i#", "9###*"}, "Skylake"},
    {{"platinum", "81##*"}, "Skylake-SP"}, {{"gold", "61##*"}, "Skylake-SP"},
    {{"gold", "5122"}, "Skylake-SP"},
    {{"gold", "51##*"}, "Skylake-SP with one FMA unit"},
    {{"silver", "41##*"}, "Skylake-SP with one FMA unit"},
    {{"platinum", "82##*"}, "Cascade Lake"}, {{"platinum", "92##*"}, "Cascade Lake"},
    {{"gold", "62##*"}, "Cascade Lake"},     {{"gold", "5222"}, "Cascade Lake"},
    {{"gold", "52##*"}, "Cascade Lake with one FMA unit"},
    {{"silver", "42##*"}, "Cascade Lake with one FMA unit"},
    {{"platinum", "83##h*"}, "Cooper Lake"}, {{"gold", "63##h*"}, "Cooper Lake"},
    {{"gold", "53##h*"}, "Cooper Lake"},
    {{"platinum", "83##*"}, "Ice Lake-SP"},  {{"gold", "63##*"}, "Ice Lake-SP"},
    {{"gold", "53##*"}, "Ice Lake-SP"},      {{"silver", "43##*"}, "Ice Lake-SP"},
    {{"platinum", "84##*"}, "Sapphire Rapids"}, {{"max", "94##*"}, "Sapphire Rapids"},
    {{"gold", "64##*"}, "Sapphire Rapids"},     {{"gold", "54##*"}, "Sapphire Rapids"},
    {{"silver", "44##*"}, "Sapphire Rapids"},
    {{"platinum", "85##*"}, "Emerald Rapids"},  {{"gold", "65##*"}, "Emerald Rapids"},
    {{"gold", "55##*"}, "Emerald Rapids"},      {{"silver", "45##*"}, "Emerald Rapids"},
    {{"xeon", "6###p*"}, "Granite Rapids"},
    {{"epyc", "7??1*"}, "Zen"},   {{"epyc", "7??2*"}, "Zen 2"}, {{"epyc", "7??3*"}, "Zen 3"},
    {{"epyc", "9??4*"}, "Zen 4"}, {{"epyc", "8??4*"}, "Zen 4"}, {{"epyc", "9??5*"}, "Zen 5"},
    {{"naples"}, "Zen"},  {{"rome"}, "Zen 2"},  {{"milan"}, "Zen 3"},
    {{"genoa"}, "Zen 4"}, {{"bergamo"}, "Zen 4"}, {{"turin"}, "Zen 5"},
    // Desktops; AMD's product pages: about the base clocks. Mobile numbers mix generations.
    {{"ryzen", "3##0x*"}, "Zen 2", "", 3.7}, {{"ryzen", "5##0x*"}, "Zen 3", "", 3.6},
    {{"ryzen", "7##0x*"}, "Zen 4", "", 4.4}, {{"ryzen", "9##0x*"}, "Zen 5", "", 4.1},
    {{"graviton2"}, "Neoverse-N1"}, {{"graviton3*"}, "Neoverse-V1"}, {{"graviton4"}, "Neoverse-V2"},
    {{"ampere", "altra"}, "Neoverse-N1", "", 3.0},
    {{"nvidia", "grace"}, "Neoverse-V2", "", 3.0},  // NVIDIA's data sheet: all cores, SIMD
    // What virtual machines are called.
    {{"xeon", "skylake"}, "", kWhichSkylake}, {{"xeon", "cascadelake"}, "", kWhichCascadeLake},
    {{"xeon", "cascade", "lake"}, "", kWhichCascadeLake},
    {{"xeon", "icelake"}, "Ice Lake-SP"}, {{"xeon", "ice", "lake"}, "Ice Lake-SP"},
    {{"cooper", "lake"}, "Cooper Lake"}, {{"sapphirerapids"}, "Sapphire Rapids"},
    {{"sapphire", "rapids"}, "Sapphire Rapids"}, {{"emerald", "rapids"}, "Emerald Rapids"},
    {{"granite", "rapids"}, "Granite Rapids"},
    {{"apple"}, "", kApple},
};
// clang-format on

}  // namespace

std::span<const CpuFamily> cpu_family_table() { return kCpuFamilies; }
std::span<const CpuProduct> cpu_product_table() { return kCpuProducts; }

}  // namespace epilogue::trace
