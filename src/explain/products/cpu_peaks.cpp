// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/printable.h"
#include "base/units.h"
#include "epilogue/trace/cpu.h"
#include "explain/products/cpu_families.h"

namespace epilogue::trace {
namespace {

using Words = std::vector<std::string>;

// A name in small letters, cut at all that is neither a letter nor a digit; the clock apart.
struct ParsedName {
  Words words;
  double ghz = 0;  // 0: none
};

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

Words words_of_cpu(std::string_view text) {
  Words words;
  bool is_inside = false;
  for (const char c : text) {
    if (!is_alnum(c)) {
      is_inside = false;
      continue;
    }
    if (!is_inside) words.emplace_back();
    is_inside = true;
    words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

// "2.90GHz", "3.6 GHz", "2600MHz"; 0 if it is none, or none that a CPU has.
double clock_of(std::string_view text) {
  constexpr double kMostGhz = 10;
  constexpr double kMegaPerGiga = 1000;
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return 0;
  const Words unit = words_of_cpu(text.substr(static_cast<size_t>(end - text.data())));
  if (unit.empty() || (unit.front() != "ghz" && unit.front() != "mhz")) return 0;
  const double ghz = unit.front() == "mhz" ? number / kMegaPerGiga : number;
  return ghz > 0 && ghz < kMostGhz ? ghz : 0;
}

ParsedName parse_name(std::string_view name) {
  const size_t at = name.find('@');
  ParsedName parsed = {.words = words_of_cpu(name.substr(0, at))};
  if (at != std::string_view::npos) parsed.ghz = clock_of(name.substr(at + 1));
  return parsed;
}

bool fits(std::string_view pattern, std::string_view word) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*')  // no further digit of a number
      return i == word.size() || !is_digit(word[i]) || !is_digit(word[i - 1]);
    if (i >= word.size()) return false;
    const bool is_same = pattern[i] == '#'   ? is_digit(word[i])
                         : pattern[i] == '?' ? true
                                             : pattern[i] == word[i];
    if (!is_same) return false;
  }
  return pattern.size() == word.size();
}

bool fits(const CpuProduct& product, const Words& words) {
  return std::all_of(product.words.begin(), product.words.end(), [&](std::string_view pattern) {
    return pattern.empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
             return fits(pattern, word);
           });
  });
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word;
  return text;
}

// The family that the name is, makers and the like apart: "Arm Neoverse-V1", "AMD Zen 3", "zen3".
const CpuFamily* family_named(const Words& words) {
  constexpr std::string_view kOthers[] = {"amd", "arm", "cpu", "fujitsu", "intel", "processor"};
  Words rest;
  for (const std::string& word : words)
    if (std::ranges::find(kOthers, word) == std::end(kOthers)) rest.push_back(word);
  for (const CpuFamily& family : cpu_family_table())
    if (joined(words_of_cpu(family.name)) == joined(rest)) return &family;
  return nullptr;
}

const CpuProduct* product_named(const Words& words) {
  for (const CpuProduct& product : cpu_product_table())
    if (fits(product, words)) return &product;
  return nullptr;
}

const CpuFamily* find_family(std::string_view name) {
  for (const CpuFamily& family : cpu_family_table())
    if (family.name == name) return &family;
  return nullptr;
}

Failure unknown_cpu(std::string_view name) {
  return {FailureCode::unknown_cpu,
          fmt::format("expected a CPU of one of the families {}; got '{}'",
                      fmt::join(cpu_families(), ", "), printable(name))};
}

// 2.5, 2.45
std::string ghz_text(double ghz) { return fmt::format("{:.4g} GHz", ghz); }

CpuPeaks peaks_of(std::string_view name, const CpuFamily& family, double ghz, int threads) {
  const double core_cycles = ghz * threads;
  const auto rate = [&](double per_cycle) {
    return per_cycle == kRateUnknown ? std::nullopt : std::optional(per_cycle * core_cycles);
  };
  CpuPeaks peaks = {
      .cpu = std::string(name), .family = std::string(family.name), .threads = threads};
  if (family.l2_kib > 0) peaks.l2_bytes = int64_t{family.l2_kib} << 10;
  peaks.ghz = ghz;
  peaks.f64 = rate(family.f32 / 2);
  peaks.f32 = rate(family.f32);
  peaks.bf16 = rate(family.bf16);
  peaks.f16 = rate(family.f16);
  peaks.i8 = rate(family.i8);
  return peaks;
}

}  // namespace

std::optional<double> CpuPeaks::rate_of(std::string_view type) const {
  if (type == "f64") return f64;
  if (type == "f32") return f32;
  if (type == "bf16") return bf16;
  if (type == "f16") return f16;
  if (type == "i8" || type == "u8") return i8;
  return std::nullopt;
}

bool CpuPeaks::lacks(std::string_view type) const { return rate_of(type) == 0.0; }

bool CpuPeaks::has(std::string_view type) const {
  if (rate_of(type)) return !lacks(type);
  return is_estimate && (type == "bf16" || type == "f16" || type == "i8");
}

std::optional<double> CpuPeaks::gflops_of(std::string_view type) const {
  if (!lacks(type)) return rate_of(type);
  return type == "bf16" || type == "f16" ? f32 : std::nullopt;
}

std::string CpuPeaks::text() const {
  std::string line = is_estimate ? "estimated from the CPU's name: " + family : cpu;
  line += ", " + counted(threads, "core", "cores");
  if (ghz > 0) line += ", " + ghz_text(ghz);
  for (const auto& [type, rate] : {std::pair("f32", f32), std::pair("bf16", bf16)})
    if (rate && *rate > 0) line += fmt::format(", {:.0f} GFLOP/s {}", *rate, type);
  return line;
}

std::string CpuPeaks::assumptions() const {
  std::string text;
  const auto add = [&](const std::string& sentence) {
    text += (text.empty() ? "" : " ") + sentence;
  };
  if (is_threads_assumed)
    add("One core is assumed: --cpu-threads says how many threads the run had.");
  else if (is_estimate && threads > 1)
    add("Each thread is assumed to have a core of its own.");
  if (is_ghz_assumed)
    add(ghz_text(ghz) + " is assumed for this family: \"@ 3.1GHz\" after the name says otherwise.");
  return text;
}

Result<CpuPeaks> estimate_cpu_peaks(std::string_view name, int threads) {
  const ParsedName parsed = parse_name(name);
  const CpuFamily* family = family_named(parsed.words);
  double ghz = 0;
  if (family == nullptr) {
    const CpuProduct* product = product_named(parsed.words);
    if (product == nullptr) return unknown_cpu(name);
    if (product->family.empty())
      return Failure{FailureCode::unknown_cpu,
                     fmt::format("expected a CPU whose rates are known, got '{}': {}",
                                 printable(name), product->reason)};
    family = find_family(product->family);
    ghz = product->ghz;
  }
  const bool names_clock = parsed.ghz > 0;
  if (names_clock) ghz = parsed.ghz;
  CpuPeaks peaks = peaks_of(name, *family, ghz > 0 ? ghz : family->ghz, threads > 0 ? threads : 1);
  peaks.is_threads_assumed = threads <= 0;
  peaks.is_ghz_assumed = !names_clock;
  return peaks;
}

std::vector<std::string> cpu_families() {
  std::vector<std::string> names;
  for (const CpuFamily& family : cpu_family_table()) names.emplace_back(family.name);
  return names;
}

namespace {

// A product waits for nothing but multiply-adds at best, so that f32 is units x lanes x 2. Sources:
//   [I]   Intel 64 and IA-32 Architectures Optimization Reference Manual: execution units, VNNI
//   [ARK] Intel's product pages: "# of AVX-512 FMA Units", base frequency
//   [AMX] the same manual, Intel AMX: 1024 bf16 and 2048 i8 operations per cycle
//   [A]   AMD Software Optimization Guide for the family: two FMA pipes, their width
//   [ARM] Arm Software Optimization Guide for the core: pipes of FMLA, their width
//   [F]   Fujitsu, A64FX Microarchitecture Manual: two pipes of SVE, 512 bits
//   L2: the same manuals and product pages. Graviton2 has 1 MiB as Altra; N2 and V2 differ by
//   product, and A64FX shares 8 MiB among twelve cores.
// No row of bf16 here rests on a measurement: where a vendor states no rate, it is kRateUnknown.
// The clock is a round number near the base clocks of a family's servers, or what the cloud that
// runs it states. It is said to be assumed wherever it is used.
constexpr double kNo = kNoInstructions;
constexpr double kHas = kRateUnknown;

// clang-format off
constexpr CpuFamily kCpuFamilies[] = {
    // name                             f32 bf16  f16   i8    GHz  L2 of a core in KiB, where all products of a family have the same
    {"Haswell",                         32, kNo,  kNo,  kHas, 2.5, 256},  // [I] 2 x 256 bits
    {"Broadwell",                       32, kNo,  kNo,  kHas, 2.3, 256},  // [I] 2 x 256
    {"Skylake",                         32, kNo,  kNo,  kHas, 3.5, 256},  // [I] 2 x 256; Core, to Comet Lake
    {"Skylake-SP",                      64, kNo,  kNo,  kHas, 2.5, 1024},  // [I] [ARK] 2 x 512
    {"Skylake-SP with one FMA unit",    32, kNo,  kNo,  kHas, 2.3, 1024},  // [I] [ARK] 1 x 512
    {"Cascade Lake",                    64, kNo,  kNo,  256,  2.6, 1024},  // [I] [ARK] 2 x 512, VNNI on both
    {"Cascade Lake with one FMA unit",  32, kNo,  kNo,  128,  2.3, 1024},  // [I] [ARK] 1 x 512
    {"Cooper Lake",                     64, kHas, kNo,  256,  2.5, 1024},  // [I] [ARK] 2 x 512; AVX512-BF16
    {"Ice Lake-SP",                     64, kNo,  kNo,  256,  2.6, 1280},  // [I] [ARK] 2 x 512
    {"Sapphire Rapids",                 64, 1024, 128,  2048, 2.1, 2048},  // [I] 2 x 512, AVX512-FP16; [AMX]
    {"Emerald Rapids",                  64, 1024, 128,  2048, 2.3, 2048},  // [I] 2 x 512, AVX512-FP16; [AMX]
    {"Granite Rapids",                  64, 1024, kHas, 2048, 2.3, 2048},  // [I] 2 x 512; [AMX]; AMX-FP16
    {"Zen",                             16, kNo,  kNo,  kHas, 2.2, 512},  // [A] 17h 00-1F: 2 x 128
    {"Zen 2",                           32, kNo,  kNo,  kHas, 2.4, 512},  // [A] 17h 30-7F: 2 x 256
    {"Zen 3",                           32, kNo,  kNo,  kHas, 2.5, 512},  // [A] 19h 00-5F: 2 x 256
    {"Zen 4",                           32, kHas, kNo,  kHas, 2.6, 1024},  // [A] 19h 10-1F: 2 x 256; AVX512-BF16
    {"Zen 5",                           64, kHas, kNo,  kHas, 2.6, 1024},  // [A] 1Ah: 2 x 512; AVX512-BF16
    {"Neoverse-N1",                     16, kNo,  32,   kHas, 2.5, 1024},  // [ARM] 2 x 128; Graviton2: AWS
    {"Neoverse-V1",                     32, kHas, 64,   kHas, 2.6, 1024},  // [ARM] 4 x 128; Graviton3: AWS
    {"Neoverse-N2",                     16, kHas, 32,   kHas, 2.8, 0},  // [ARM] 2 x 128
    {"Neoverse-V2",                     32, kHas, 64,   kHas, 2.8, 0},  // [ARM] 4 x 128
    {"A64FX",                           64, kNo,  128,  kHas, 2.0, 0},  // [F]
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
    // Names that virtual machines report.
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
