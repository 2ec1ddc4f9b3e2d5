// SPDX-License-Identifier: Apache-2.0
// epilogue profile WORKLOAD: the table and the trace of a workload.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "explain/answer/expectations.h"
#include "explain/render/document.h"
#include "measure/machine_facts.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/profile/machine.h"
#include "tools/epilogue/profile/profile_run.h"

namespace epilogue::tool {
namespace {

struct ProfileFlags {
  WorkloadOptions workload;
  ProfileRunOptions run;
  Format format = Format::text;
  std::vector<std::string> expectations;
  bool measure = false;
  std::string machine_file;
};

// Asked for after make_workload, which sets the number of threads.
nlohmann::json machine_of(const ProfileFlags& o) {
  if (o.workload.device != "cpu" && (o.measure || !o.machine_file.empty()))
    throw Error("[--device] expected cpu: the peaks of --measure and --machine are a CPU's, got '" +
                o.workload.device + "'");
  if (!o.machine_file.empty()) return machine_of_file(o.machine_file);
  return o.measure ? measured_machine() : measure::known_machine();
}

// Costs a recorded event; ops and kernels are what a trace is made of.
double ns_per_event(const profiler::RecorderCost& cost) {
  return (cost.ns_per_op + cost.ns_per_kernel) / 2;
}

std::string found_text(const trace::Judgement& j) {
  return j.found ? fmt::format("{:g}", *j.found) : "not in this trace";
}

nlohmann::json expectations_json(const std::vector<trace::Judgement>& judgements) {
  auto list = nlohmann::json::array();
  for (const trace::Judgement& j : judgements)
    list.push_back(
        {{"expr", j.expectation.text},
         {"expected", j.expectation.op + " " + fmt::format("{:g}", j.expectation.expected)},
         {"found", j.found ? nlohmann::json(*j.found) : nlohmann::json()},
         {"holds", j.holds}});
  return list;
}

// Who held what when most was allocated, by torch.profiler's categories.
nlohmann::json memory_json(const trace::DeviceMemory& m) {
  auto categories = nlohmann::json::object();
  for (size_t c = 0; !m.category_totals.empty() && c < trace::kMemoryCategories; ++c)
    categories[std::string(memory_category_name(static_cast<trace::MemoryCategory>(c)))] = {
        {"at_peak_bytes", m.category_at_peak[c]}, {"peak_bytes", m.category_peak[c]}};
  return {{"peak_bytes", m.peak_bytes}, {"categories", categories}};
}

std::string memory_text(const trace::DeviceMemory& m) {
  std::string text =
      fmt::format("memory: {} at the peak", format_bytes(static_cast<double>(m.peak_bytes)));
  for (size_t c = 0; !m.category_totals.empty() && c < trace::kMemoryCategories; ++c)
    if (m.category_at_peak[c] != 0)
      text += fmt::format("{} {} {}", text.ends_with("peak") ? ":" : ",",
                          memory_category_name(static_cast<trace::MemoryCategory>(c)),
                          format_bytes(static_cast<double>(m.category_at_peak[c])));
  return text + "\n";
}

std::string profile_json(const ProfileFlags& o, const Workload& workload, const ProfileRun& run,
                         const std::vector<trace::Judgement>& judgements) {
  trace::TableOptions table = {.sort_by = o.run.sort_by, .row_limit = o.run.row_limit};
  nlohmann::json out = parse_json_or_throw(trace::table_json(run.averages, table));
  out["schema_version"] = kSchemaVersion;
  out["tag"] = run.tag;
  out["workload"] = workload.description;
  out["trace"] = run.trace_file;
  out["table_file"] = run.table_file;
  out["expectations"] = expectations_json(judgements);
  out["profiler_ns_per_event"] = ns_per_event(run.cost);
  if (!run.memory.empty()) out["memory"] = memory_json(run.memory.front());
  auto& quantities = out["quantities"];
  for (const trace::Quantity& q : run.quantities)
    quantities[q.name] = q.value ? nlohmann::json(*q.value) : nlohmann::json();
  return json_text(out, 2) + "\n";
}

std::string summary(const ProfileRun& run) {
  std::string text;
  const double dispatch = quantity(run, "host_us_per_step");
  const double kernels = quantity(run, "kernel_us_per_step");
  if (!std::isnan(dispatch) && !std::isnan(kernels))
    text += fmt::format("per step: {}, {} in kernels, {} around them (dispatch, ranges)\n",
                        kernels_per_step_text(run), format_duration_ns(kernels * 1e3),
                        format_duration_ns(dispatch * 1e3));
  text += fmt::format("profiler: {:.0f} ns per op, {:.0f} ns per kernel; {} of the recorded time\n",
                      run.cost.ns_per_op, run.cost.ns_per_kernel,
                      format_duration_ns(run.recorder_overhead_ns));
  if (!run.memory.empty()) text += memory_text(run.memory.front());
  text += fmt::format("trace: {}  (open it in https://ui.perfetto.dev)\ntable: {}\n",
                      run.trace_file, run.table_file);
  return text;
}

trace::Document profile_document(const ProfileFlags& o, const Workload& workload,
                                 const ProfileRun& run,
                                 const std::vector<trace::Judgement>& judgements) {
  trace::TableOptions table = {.sort_by = o.run.sort_by, .row_limit = o.run.row_limit};
  std::string lines = summary(run);
  for (const trace::Judgement& j : judgements)
    lines += fmt::format("expected {}: {} (found {})\n", j.expectation.text,
                         j.holds ? "holds" : "FAILS", found_text(j));
  trace::Document document = {
      trace::Heading{workload.description, 3},
      trace::Preformatted{run.table, trace::table_markdown(run.averages, table) + "\n"},
      trace::preformatted(lines)};
  document.json = [&] { return profile_json(o, workload, run, judgements); };
  return document;
}

int run_profile_command(ProfileFlags o) {
  const std::vector<trace::Expectation> expectations =
      trace::parse_expectations("--expect", o.expectations);
  const Workload workload = make_workload(o.workload);
  o.run.metadata = measure::trace_metadata(machine_of(o));
  const ProfileRun run = run_profile(workload, o.run);
  std::vector<trace::Judgement> judgements;
  bool all_hold = true;
  for (const trace::Expectation& e : expectations) {
    judgements.push_back(trace::judge(e, run.quantities));
    all_hold = all_hold && judgements.back().holds;
  }
  for (const std::string& w : run.warnings) fmt::print(stderr, "epilogue: warning: {}\n", w);
  print(profile_document(o, workload, run, judgements), o.format);
  return all_hold ? kExitFine : kExitNo;
}

void add_run_flags(CLI::App& app, ProfileFlags& o) {
  ProfileRunOptions& r = o.run;
  app.add_flag("--record-shapes", r.record_shapes, "record the ops' argument shapes");
  app.add_flag("--profile-memory", r.profile_memory, "record allocations and frees");
  app.add_flag("--with-flops", r.with_flops, "count the FLOPs of matrix products, add and mul");
  app.add_flag("--with-stack", r.with_stack, "record C++ call stacks and modules");
  app.add_flag("--group-by-input-shape", r.group_by_input_shape, "one row per op and shapes");
  const auto add_count = [&app](const char* name, auto& count, int least, const char* what) {
    app.add_option(name, count, what)
        ->check(whole_number(least))
        ->option_text(fmt::format("N [{}]", count));
  };
  add_count("--wait", r.schedule.wait, 0, "steps to skip per cycle");
  add_count("--warmup", r.schedule.warmup, 0, "steps to trace and drop");
  add_count("--active", r.schedule.active, 1, "steps to record");
  add_count("--repeat", r.schedule.repeat, 0, "cycles; 0: one");
  add_count("--skip-first", r.schedule.skip_first, 0, "steps before the first cycle");
  app.add_option("--sort-by", r.sort_by, "table order")->option_text("KEY [cpu_time_total]");
  add_count("--row-limit", r.row_limit, -1, "rows of the table; -1: all");
  add_out_and_tag(app, r.out_dir, r.tag, "trace and table", "by workload, sizes and mode");
  CLI::Option* const measure = app.add_flag(
      "--measure", o.measure, "measure the machine's peaks for the trace, for rooflines (seconds)");
  app.add_option("--machine", o.machine_file,
                 "take the peaks from what info --measure --format json printed")
      ->option_text("FILE")
      ->excludes(measure);
  app.add_option("--expect", o.expectations,
                 "state an expectation first, e.g. 'kernels_per_step == 5'; exit 1 if it fails")
      ->option_text("EXPR ...");
  add_format(app, o.format);
}

constexpr const char* kProfileExamples[][3] = {
    {"matmul-add", "torch.add(torch.matmul(x, w), b) on square matrices",
     "epilogue profile matmul-add --size 1024 --dtype f32"},
    {"linear", "nn.Linear", "epilogue profile linear --batch 1024 --in-dim 32 --out-dim 64"},
    {"mlp", "gated or plain MLP",
     "epilogue profile mlp --input fashion-mnist --expect 'kernels_per_step == 5'"},
    {"train-step", "forward, loss, backward and optimizer of an MLP",
     "epilogue profile train-step --amp bf16 --accumulate 4 --profile-memory"}};

}  // namespace

void add_profile_command(CLI::App& app, Body& run) {
  CLI::App* profile = app.add_subcommand("profile", "Runs a workload under the profiler");
  profile->require_subcommand(1);
  profile->footer(
      "Runs 3 warm-up calls, then schedule(wait 1, warmup 1, active 3, repeat 1).\n"
      "Example: epilogue profile mlp --dtype f32 --record-shapes --out traces");
  for (const auto& [kind, doc, example] : kProfileExamples) {
    auto options = std::make_shared<ProfileFlags>();
    CLI::App* workload = profile->add_subcommand(kind, doc);
    add_workload_flags(*workload, kind, options->workload);
    add_run_flags(*workload, *options);
    workload->footer(std::string("Example: ") + example);
    workload->callback(
        [options, &run] { run = [options] { return run_profile_command(*options); }; });
  }
}

}  // namespace epilogue::tool
