// SPDX-License-Identifier: Apache-2.0
#include "base/machine.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/caches.h"
#include "base/cpu_features.h"
#include "base/json.h"
#include "base/json_file.h"
#include "base/thread_pool.h"

namespace epilogue {
namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 1;
constexpr const char* kMachines = "machines";
// A product of many rows reads its weights from L2, and some of it waits: the share of the peak
// that it reaches where no product was measured.
constexpr double kProductShare = 0.8;

constexpr double kLeastHandoffNs = 100;
constexpr double kMostHandoffNs = 5000;

// A figure that is missing, no number, or not above 0 is 0: unknown.
double number_or_zero(const json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_number() && at->get<double>() > 0 ? at->get<double>() : 0;
}

std::string text_or_empty(const json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::vector<std::pair<int64_t, double>> pairs_of(const json& j) {
  std::vector<std::pair<int64_t, double>> pairs;
  if (!j.is_array()) return pairs;
  for (const json& each : j)
    if (each.is_array() && each.size() == 2 && each[0].is_number_integer() && each[1].is_number())
      pairs.emplace_back(each[0].get<int64_t>(), each[1].get<double>());
  return pairs;
}

json chains_json(const MachineFigures& f) {
  json gflops = json::object();
  json ns_per_element = json::object();
  for (const ChainRates& chain : f.chains) {
    gflops[chain.dtype] = chain.gflops;
    ns_per_element[chain.dtype] = chain.ns_per_element;
  }
  return {{"overhead_us", f.chain_overhead_us},
          {"ns_per_element", std::move(ns_per_element)},
          {"gflops_by_rows", std::move(gflops)}};
}

void read_chains(const json& j, MachineFigures& f) {
  if (!j.is_object()) return;
  f.chain_overhead_us = number_or_zero(j, "overhead_us");
  const json gflops = j.value("gflops_by_rows", json::object());
  const json elements = j.value("ns_per_element", json::object());
  if (!gflops.is_object() || !elements.is_object()) return;
  for (const auto& [dtype, rates] : gflops.items())
    f.chains.push_back({dtype, pairs_of(rates), number_or_zero(elements, dtype.c_str())});
}

json to_json(const MachineFigures& f) {
  json j = {{"cpu_identity", f.cpu},
            {"isa_used", f.isa},
            {"threads", f.threads},
            {"f32_peak_gflops", f.f32_gflops},
            {"f32_peak_gflops_one_thread", f.f32_gflops_one_thread},
            {"f32_product_gflops_one_thread", f.f32_product_gflops},
            {"bf16_product_gflops_one_thread", f.bf16_product_gflops},
            {"memory_read_gb_per_s", f.memory_gb_per_s},
            {"memory_read_gb_per_s_one_thread", f.memory_gb_per_s_one_thread},
            {"stream_gb_per_s_one_thread", f.stream_gb_per_s_one_thread},
            {"read_gb_per_s_by_bytes", f.read_gb_per_s},
            {"row_chain", chains_json(f)},
            {"handoff_us", f.handoff_us}};
  if (f.bf16_gflops > 0) j["bf16_peak_gflops"] = f.bf16_gflops;
  return j;
}

MachineFigures of_json(const json& j) {
  MachineFigures f;
  f.cpu = text_or_empty(j, "cpu_identity");
  f.isa = text_or_empty(j, "isa_used");
  f.threads = static_cast<int>(number_or_zero(j, "threads"));
  f.f32_gflops = number_or_zero(j, "f32_peak_gflops");
  f.f32_gflops_one_thread = number_or_zero(j, "f32_peak_gflops_one_thread");
  f.bf16_gflops = number_or_zero(j, "bf16_peak_gflops");
  f.f32_product_gflops = number_or_zero(j, "f32_product_gflops_one_thread");
  f.bf16_product_gflops = number_or_zero(j, "bf16_product_gflops_one_thread");
  f.memory_gb_per_s = number_or_zero(j, "memory_read_gb_per_s");
  f.memory_gb_per_s_one_thread = number_or_zero(j, "memory_read_gb_per_s_one_thread");
  f.stream_gb_per_s_one_thread = number_or_zero(j, "stream_gb_per_s_one_thread");
  f.read_gb_per_s = pairs_of(j.value("read_gb_per_s_by_bytes", json()));
  f.handoff_us = number_or_zero(j, "handoff_us");
  read_chains(j.value("row_chain", json()), f);
  return f;
}

// The machines of the file that can be used; a file that cannot be read has none.
json machines_of_file(const std::string& path) {
  if (path.empty()) return json::array();
  json machines = read_versioned(path, kSchemaVersion, kMachines);
  return machines.is_array() ? machines : json::array();
}

bool is_of(const MachineFigures& f, const std::string& cpu, std::string_view isa, int threads) {
  return f.cpu == cpu && f.isa == isa && f.threads == threads;
}

// The known figures, and the last answer.
class Store {
 public:
  std::optional<MachineFigures> find(Isa isa, int threads) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return find_locked(isa, threads);
  }

  MachineRates rates() {
    const Isa isa = active_isa();
    const int threads = num_threads();
    const Answer* last = last_.load(std::memory_order_acquire);
    if (last != nullptr && last->isa == isa && last->threads == threads) return last->rates;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = std::ranges::find_if(answers_, [&](const Answer& a) {
      return !a.is_old && a.isa == isa && a.threads == threads;
    });
    if (known == answers_.end()) {
      const std::optional<MachineFigures> figures = find_locked(isa, threads);
      answers_.push_back({isa, threads, figures ? rates_of(*figures) : kFallbackRates, false});
      last = &answers_.back();
    } else {
      last = &*known;
    }
    last_.store(last, std::memory_order_release);
    return last->rates;
  }

  void add(const MachineFigures& figures) {
    const std::lock_guard<std::mutex> lock(mutex_);
    load();
    std::erase_if(figures_, [&](const MachineFigures& f) {
      return is_of(f, figures.cpu, figures.isa, figures.threads);
    });
    figures_.push_back(figures);
    // Answers stay where they are: another thread may be reading one.
    for (Answer& a : answers_) a.is_old = true;
    last_.store(nullptr, std::memory_order_release);
  }

 private:
  struct Answer {
    Isa isa;
    int threads;
    MachineRates rates;
    bool is_old;  // the lock's
  };

  void load() {
    if (is_loaded_) return;
    is_loaded_ = true;
    for (const json& machine : machines_of_file(machine_file()))
      if (machine.is_object()) figures_.push_back(of_json(machine));
  }

  std::optional<MachineFigures> find_locked(Isa isa, int threads) {
    load();
    const std::string cpu = cpu_identity();
    for (const MachineFigures& f : figures_)
      if (is_of(f, cpu, isa_name(isa), threads)) return f;
    return {};
  }

  std::mutex mutex_;
  bool is_loaded_ = false;
  std::vector<MachineFigures> figures_;
  std::deque<Answer> answers_;
  std::atomic<const Answer*> last_{nullptr};
};

Store& store() {
  static Store& only = *new Store;  // used by threads that may outlive main()
  return only;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

MachineRates rates_of(const MachineFigures& f) {
  const auto either = [](double figure, double otherwise) {
    return figure > 0 ? figure : otherwise;
  };
  const MachineRates& unknown = kFallbackRates;
  MachineRates r;
  r.is_measured = true;
  r.f32_flops_per_ns = either(f.f32_product_gflops, either(f.f32_gflops_one_thread * kProductShare,
                                                           unknown.f32_flops_per_ns));
  r.bf16_flops_per_ns = either(f.bf16_product_gflops, r.f32_flops_per_ns);
  r.stream_bytes_per_ns = either(f.stream_gb_per_s_one_thread,
                                 either(f.memory_gb_per_s_one_thread, unknown.stream_bytes_per_ns));
  r.stream_bytes_per_ns_all = either(f.memory_gb_per_s, r.stream_bytes_per_ns);
  constexpr int64_t kStreamBytes = int64_t{16} << 20;
  for (const auto& [bytes, rate] : f.read_gb_per_s)
    if (bytes == kStreamBytes) r.stream_bytes_per_ns_all = rate;
  // Measured beside a neighbour that holds the core: such a figure would keep threads idle for
  // ever.
  r.stream_bytes_per_ns_all = std::max(r.stream_bytes_per_ns_all, r.stream_bytes_per_ns);
  r.handoff_ns =
      std::clamp(either(f.handoff_us * 1000, unknown.handoff_ns), kLeastHandoffNs, kMostHandoffNs);
  return r;
}

MachineRates machine_rates() { return store().rates(); }

std::optional<MachineFigures> machine_figures() {
  return store().find(active_isa(), num_threads());
}

Status set_machine_figures(const MachineFigures& figures) {
  store().add(figures);
  const std::string path = machine_file();
  if (path.empty()) return std::monostate{};
  json machines = machines_of_file(path);
  const auto is_same = [&](const json& machine) {
    return machine.is_object() &&
           is_of(of_json(machine), figures.cpu, figures.isa, figures.threads);
  };
  machines.erase(std::remove_if(machines.begin(), machines.end(), is_same), machines.end());
  machines.push_back(to_json(figures));
  return write_versioned(path, kSchemaVersion, kMachines, std::move(machines));
}

std::string cache_folder() {
  if (const std::string folder = environment("EPILOGUE_CACHE_DIR"); !folder.empty())
    return folder == "off" ? std::string() : folder;
  return user_cache_folder();
}

std::string user_cache_folder() {
  if (const std::string folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/epilogue";
  const std::string home = environment("HOME");
  return home.empty() ? std::string() : home + "/.cache/epilogue";
}

std::string machine_file() {
  const std::string folder = cache_folder();
  return folder.empty() ? folder : folder + "/machine.json";
}

std::string cpu_identity() {
  static const std::string identity = [] {
    std::string family;
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line) && !line.empty();)
      for (const char* key : {"cpu family", "model\t", "stepping"})
        if (line.starts_with(key)) family += " " + line.substr(line.find(':') + 2);
    const Caches caches = cpu_caches();
    std::string text = std::string(cpu_model_name()) + ", family/model/stepping" + family;
    for (const long bytes : {caches.l1d_bytes, caches.l2_bytes, caches.l3_bytes})
      text += ", " + std::to_string(bytes >> 10) + " KiB";
    return text;
  }();
  return identity;
}

std::string figures_json(const MachineFigures& figures) { return json_text(to_json(figures), 2); }

Result<MachineFigures> parse_figures(const std::string& text) {
  const json j = parse_json(text);
  if (!j.is_object() || number_or_zero(j, "f32_peak_gflops") == 0)
    return Failure{
        FailureCode::no_machine,
        "expected what epilogue info --measure --format json prints, got something else"};
  return of_json(j);
}

}  // namespace epilogue
