// SPDX-License-Identifier: Apache-2.0
// epilogue info: what this build and this machine are.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "core/backend.h"
#include "epilogue/runtime.h"
#include "explain/render/document.h"
#include "measure/machine_facts.h"
#include "profile/device_tracer.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/machine.h"

namespace epilogue::tool {
namespace {

struct InfoFlags {
  Format format = Format::text;
  bool measure = false;
  int threads = 0;
};

// The state of CUDA's needs, and of CUPTI, which profiles need.
nlohmann::json cuda_parts_json() {
  std::vector<CudaPart> parts = cuda_parts();
  parts.push_back(
      {"CUPTI", profiler::device_tracer() != nullptr, profiler::device_tracer_status()});
  auto list = nlohmann::json::array();
  for (const CudaPart& part : parts)
    list.push_back({{"name", part.name}, {"is_there", part.is_there}, {"state", part.state}});
  return list;
}

nlohmann::json as_json(const InfoFlags& o) {
  nlohmann::json out = o.measure ? measured_machine(true) : measure::known_machine();
  out["schema_version"] = kSchemaVersion;
  out["version"] = version();
  out["cuda"] = cuda_status();
  out["cuda_parts"] = cuda_parts_json();
  return out;
}

using Rows = std::vector<std::pair<std::string, std::string>>;

// The measured figures, of this or an earlier run, and the file that keeps them.
void add_figures(const nlohmann::json& info, Rows& rows) {
  const auto number = [&](const char* key) { return info.value(key, 0.0); };
  const std::string file = info["machine_file"];
  if (!info.contains("f32_peak_gflops")) {
    rows.emplace_back("measured",
                      "nothing yet for this instruction set and number of threads: --measure");
  } else {
    rows.emplace_back(
        "f32 peak", fmt::format("{:.1f} GFLOP/s ({:.1f} on one thread)", number("f32_peak_gflops"),
                                number("f32_peak_gflops_one_thread")));
    if (info.contains("bf16_peak_gflops"))
      rows.emplace_back("bf16 peak", fmt::format("{:.1f} GFLOP/s", number("bf16_peak_gflops")));
    rows.emplace_back("packed products",
                      fmt::format("f32 {:.1f}, bf16 {:.1f} GFLOP/s on one thread",
                                  number("f32_product_gflops_one_thread"),
                                  number("bf16_product_gflops_one_thread")));
    rows.emplace_back("memory read", fmt::format("{:.1f} GB/s ({:.1f} on one thread)",
                                                 number("memory_read_gb_per_s"),
                                                 number("memory_read_gb_per_s_one_thread")));
    rows.emplace_back("16 MiB read", fmt::format("{:.1f} GB/s on one thread",
                                                 number("stream_gb_per_s_one_thread")));
    rows.emplace_back("handing work to threads", fmt::format("{:.2f} us", number("handoff_us")));
  }
  rows.emplace_back(
      "kept in", file.empty() ? "no file: EPILOGUE_CACHE_DIR is off, or there is no home" : file);
}

trace::Document info_document(const nlohmann::json& info) {
  const auto size = [&](const char* key) { return format_bytes(info[key].get<double>()); };
  Rows rows = {{"epilogue", info["version"]},
               {"CPU", info["cpu"]},
               {"instruction set", fmt::format("{} (found {}); EPILOGUE_ISA lowers it",
                                               info["isa_used"].get<std::string>(),
                                               info["isa_detected"].get<std::string>())},
               {"threads", std::to_string(num_threads())},
               {"caches", fmt::format("L1d {}, L2 {}, L3 {}", size("l1d_bytes"), size("l2_bytes"),
                                      size("l3_bytes"))},
               {"CUDA", info["cuda"]}};
  for (const nlohmann::json& part : info["cuda_parts"])
    rows.emplace_back("  " + part["name"].get<std::string>(), part["state"]);
  add_figures(info, rows);
  trace::Table table;
  table.columns = {{.width = 22}, {}};
  for (const auto& [key, value] : rows) table.rows.push_back({{key}, {value}});
  trace::Document document = {std::move(table)};
  document.json = [info] { return json_text(info, 2) + "\n"; };
  return document;
}

int run_info_command(const InfoFlags& o) {
  if (o.threads != 0) set_num_threads(o.threads);
  print(info_document(as_json(o)), o.format);
  return kExitFine;
}

}  // namespace

void add_info_command(CLI::App& app, Body& run) {
  CLI::App* info =
      app.add_subcommand("info", "Prints version, instruction sets, threads, caches, CUDA");
  auto options = std::make_shared<InfoFlags>();
  info->add_flag("--measure", options->measure,
                 "measure peak FLOP/s and bandwidths anew, and keep them for later runs");
  add_threads(*info, options->threads, "threads to measure with");
  add_format(*info, options->format);
  info->footer(
      "--measure keeps its figures in a file of this user, by CPU, instruction set and threads.\n"
      "compile() chooses plans by them. EPILOGUE_CACHE_DIR names another folder;\n"
      "EPILOGUE_CACHE_DIR=off keeps nothing.\n"
      "Example: epilogue info --measure");
  info->callback([options, &run] { run = [options] { return run_info_command(*options); }; });
}

}  // namespace epilogue::tool
