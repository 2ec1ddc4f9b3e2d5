// SPDX-License-Identifier: Apache-2.0
#include "trace/nsys/nsys_reader.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "trace/read/finish_trace.h"

namespace epilogue::trace {
namespace {

constexpr int kMostValueBytes = 16 << 20;  // of one text of the database

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// The message of SQLite, one line.
struct Broken {
  std::string what;
};

Statement prepare(sqlite3* db, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr) != SQLITE_OK)
    throw Broken{sqlite3_errmsg(db)};
  return Statement(statement);
}

std::string_view text_of(sqlite3_stmt* row, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(row, column))};
}

// A table, by the names of the columns that are asked for: versions of Nsight Systems differ in
// them. A column that is not there reads as null.
class TableRows {
 public:
  TableRows(sqlite3* db, std::string_view table, const std::vector<std::string>& columns)
      : db_(db) {
    // Views and virtual tables may run what the file's author wrote.
    const Statement is_table = prepare(
        db, fmt::format("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{}' AND sql "
                        "NOT LIKE 'CREATE VIRTUAL%'",
                        table));
    if (sqlite3_step(is_table.get()) != SQLITE_ROW) return;
    std::vector<std::string> known;
    const Statement info = prepare(db, fmt::format("PRAGMA table_info('{}')", table));
    while (sqlite3_step(info.get()) == SQLITE_ROW) known.emplace_back(text_of(info.get(), 1));
    std::string list;
    for (const std::string& column : columns) {
      const bool is_there = std::find(known.begin(), known.end(), column) != known.end();
      list += (list.empty() ? "" : ", ") + (is_there ? "\"" + column + "\"" : "NULL");
    }
    statement_ = prepare(db, fmt::format("SELECT {} FROM \"{}\"", list, table));
  }

  bool is_there() const { return statement_ != nullptr; }
  bool next() {
    if (!statement_) return false;
    const int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) throw Broken{sqlite3_errmsg(db_)};
    return false;
  }
  bool has(int column) const {
    return sqlite3_column_type(statement_.get(), column) != SQLITE_NULL;
  }
  int64_t number(int column, int64_t missing = 0) const {
    return has(column) ? sqlite3_column_int64(statement_.get(), column) : missing;
  }
  std::string_view text(int column) const { return text_of(statement_.get(), column); }

 private:
  sqlite3* db_;
  Statement statement_;
};

// pid and tid of Nsight's global thread id: 24 bits each, below the machine's number.
int32_t pid_of(int64_t global_tid) { return static_cast<int32_t>(global_tid >> 24 & 0xFFFFFF); }
int64_t tid_of(int64_t global_tid) { return global_tid & 0xFFFFFF; }

std::string_view copy_name(int64_t kind) {
  switch (kind) {
    case 1: return "Memcpy HtoD";
    case 2: return "Memcpy DtoH";
    case 8: return "Memcpy DtoD";
    case 9: return "Memcpy HtoH";
    case 10: return "Memcpy PtoP";
    default: return "Memcpy";
  }
}

// "cudaLaunchKernel_v7000" -> "cudaLaunchKernel": the version of the entry point.
std::string_view without_version(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || at + 2 == name.size()) return name;
  return name.find_first_not_of("0123456789", at + 2) == std::string_view::npos ? name.substr(0, at)
                                                                                : name;
}

// One tensor of "[[2, 3], []]", or a list of tensors.
OpInput input_of(const nlohmann::json& sizes) {
  OpInput input;
  for (const nlohmann::json& size : sizes) {
    if (size.is_number_integer()) input.dims.push_back(size.get<int64_t>());
    if (!size.is_array()) continue;
    input.is_list = true;
    input.list.push_back(input_of(size));
  }
  return input;
}

// The text of a range of torch.autograd.profiler.emit_nvtx (torch/csrc/profiler/util.cpp,
// getNvtxStr): "aten::mm, seq = 3, op_id = 7, sizes = [[2, 3], [3, 4]], input_op_ids = [...]".
// All that follows the name may be missing.
struct OpText {
  std::string_view name;
  int64_t sequence_number = -1;
  std::vector<OpInput> inputs;
  bool is_op = false;
};
OpText op_text(std::string_view text) {
  constexpr std::string_view kSequence = ", seq = ";
  constexpr std::string_view kId = ", op_id = ";
  constexpr std::string_view kSizes = ", sizes = ";
  constexpr std::string_view kInputIds = ", input_op_ids = ";
  OpText op;
  op.name = text.substr(0, std::min(text.find(kSequence), text.find(kId)));
  op.is_op = op.name.starts_with("aten::") || op.name.size() < text.size();
  if (!op.is_op) return op;
  op.name = op.name.substr(0, op.name.find(kSizes));
  if (const size_t at = text.find(kSequence); at != std::string_view::npos) {
    const char* const begin = text.data() + at + kSequence.size();
    std::from_chars(begin, text.data() + text.size(), op.sequence_number);
  }
  if (const size_t at = text.find(kSizes); at != std::string_view::npos) {
    std::string_view sizes = text.substr(at + kSizes.size());
    sizes = sizes.substr(0, sizes.find(kInputIds));
    const auto json = parse_json(sizes);
    if (json.is_array())
      for (const nlohmann::json& one : json) op.inputs.push_back(input_of(one));
  }
  return op;
}

// "MulBackward0": the ranges do not say which ops are of the backward pass.
bool is_backward(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789");
  return digits != std::string_view::npos && name.substr(0, digits + 1).ends_with("Backward") &&
         name.find(':') == std::string_view::npos;
}

class NsysReader {
 public:
  NsysReader(sqlite3* db, const ReadOptions& options) : db_(db), options_(options) {}

  // False: the database has no table of a profile.
  bool read() {
    read_strings();
    bool has_any = read_kernels();
    has_any |= read_copies();
    has_any |= read_fills();
    has_any |= read_graphs();
    has_any |= read_calls();
    has_any |= read_ranges();
    if (!has_any) return false;
    find_backward_ops();
    read_devices();
    read_start();
    trace_.import.events = static_cast<int64_t>(trace_.events.size());
    set_window(trace_, std::nullopt);
    infer_recorded(trace_);
    set_device_label(trace_);
    trace_.span_name = "Nsight Systems";
    trace_.metadata.emplace_back("nsight_systems", "true");
    return true;
  }
  Trace take() { return std::move(trace_); }

 private:
  void read_strings() {
    TableRows rows(db_, "StringIds", {"id", "value"});
    while (rows.next()) strings_[rows.number(0)] = trace_.strings.intern(rows.text(1));
  }
  StringId string(int64_t id) {
    const auto found = strings_.find(id);
    return found == strings_.end() ? trace_.strings.intern("?") : found->second;
  }

  // Skips what has no time, and says how many.
  Event* event(const TableRows& rows, Category category) {
    if (!rows.has(0) || !rows.has(1) || rows.number(1) < rows.number(0)) {
      skip();
      return nullptr;
    }
    Event& e = trace_.events.emplace_back();
    e.ts_ns = rows.number(0);
    e.dur_ns = rows.number(1) - rows.number(0);
    e.category = category;
    if (options_.progress && trace_.events.size() % 4096 == 0) options_.progress(0, 0);
    return &e;
  }
  void skip() {
    ++trace_.import.skipped_events;
    for (ImportNote& note : trace_.import.skips)
      if (note.id == "bad-time") return void(++note.count);
    trace_.import.skips.push_back(
        {.id = "bad-time", .detail = "rows without a start and an end after it", .count = 1});
  }

  // Columns 0 to 5 of device work.
  static std::vector<std::string> work_columns(std::vector<std::string> more) {
    std::vector<std::string> columns = {"start",    "end",           "deviceId",
                                        "streamId", "correlationId", "graphNodeId"};
    columns.insert(columns.end(), more.begin(), more.end());
    return columns;
  }
  KernelArgs* work(const TableRows& rows, Category category) {
    Event* e = event(rows, category);
    if (e == nullptr) return nullptr;
    e->pid = static_cast<int32_t>(rows.number(2));
    e->tid = rows.number(3);
    e->correlation = rows.number(4);
    e->args = static_cast<uint32_t>(trace_.kernels.size());
    KernelArgs& args = trace_.kernels.emplace_back();
    args.device = e->pid;
    args.stream = e->tid;
    args.registers_per_thread = -1;
    args.shared_memory_bytes = -1;
    args.has_grid = false;
    // The graph's number, and the node's in it.
    if (rows.has(5)) {
      args.graph_node_id = rows.number(5);
      args.graph_id = args.graph_node_id >> 32;
    }
    return &args;
  }

  bool read_kernels() {
    TableRows rows(db_, "CUPTI_ACTIVITY_KIND_KERNEL",
                   work_columns({"demangledName", "registersPerThread", "gridX", "gridY", "gridZ",
                                 "blockX", "blockY", "blockZ", "staticSharedMemory",
                                 "dynamicSharedMemory", "contextId"}));
    while (rows.next()) {
      KernelArgs* args = work(rows, Category::kernel);
      if (args == nullptr) continue;
      trace_.events.back().name = string(rows.number(6));
      args->registers_per_thread = static_cast<int32_t>(rows.number(7, -1));
      args->has_grid = rows.has(8) && rows.has(11);
      for (int i = 0; i < 3; ++i) {
        args->grid[static_cast<size_t>(i)] = rows.number(8 + i, 1);
        args->block[static_cast<size_t>(i)] = rows.number(11 + i, 1);
      }
      if (rows.has(14) || rows.has(15))
        args->shared_memory_bytes = rows.number(14) + rows.number(15);
      args->context = static_cast<int32_t>(rows.number(16));
    }
    return rows.is_there();
  }

  bool read_copies() {
    TableRows rows(db_, "CUPTI_ACTIVITY_KIND_MEMCPY", work_columns({"bytes", "copyKind"}));
    while (rows.next())
      if (KernelArgs* args = work(rows, Category::gpu_memcpy)) {
        trace_.events.back().name = trace_.strings.intern(copy_name(rows.number(7)));
        args->bytes = rows.number(6, -1);
      }
    return rows.is_there();
  }

  bool read_fills() {
    TableRows rows(db_, "CUPTI_ACTIVITY_KIND_MEMSET", work_columns({"bytes"}));
    while (rows.next())
      if (KernelArgs* args = work(rows, Category::gpu_memset)) {
        trace_.events.back().name = trace_.strings.intern("Memset (Device)");
        args->bytes = rows.number(6, -1);
      }
    return rows.is_there();
  }

  // --cuda-graph-trace=graph: a replay is one piece of work.
  bool read_graphs() {
    TableRows rows(db_, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", work_columns({"graphId"}));
    while (rows.next())
      if (KernelArgs* args = work(rows, Category::kernel)) {
        trace_.events.back().name =
            trace_.strings.intern(fmt::format("CUDA graph {}", rows.number(6)));
        args->graph_id = rows.number(6, -1);
      }
    return rows.is_there();
  }

  bool read_calls() {
    TableRows rows(db_, "CUPTI_ACTIVITY_KIND_RUNTIME",
                   {"start", "end", "globalTid", "correlationId", "nameId"});
    while (rows.next()) {
      const StringId full = string(rows.number(4));
      const StringId name = trace_.strings.intern(without_version(trace_.strings[full]));
      const std::string_view text = trace_.strings[name];
      const bool is_driver = text.starts_with("cu") && !text.starts_with("cuda");
      Event* e = event(rows, is_driver ? Category::cuda_driver : Category::cuda_runtime);
      if (e == nullptr) continue;
      e->pid = pid_of(rows.number(2));
      e->tid = tid_of(rows.number(2));
      e->correlation = rows.number(3);
      e->name = name;
      e->args = static_cast<uint32_t>(trace_.runtime_calls.size());
      trace_.runtime_calls.emplace_back();
    }
    return rows.is_there();
  }

  bool read_ranges() {
    constexpr int64_t kPushPop = 59;
    constexpr int64_t kStartEnd = 60;
    TableRows rows(db_, "NVTX_EVENTS",
                   {"start", "end", "globalTid", "eventType", "text", "textId"});
    while (rows.next()) {
      const int64_t type = rows.number(3);
      if (type != kPushPop && type != kStartEnd) continue;  // marks, names of domains
      const StringId text = rows.has(4)   ? trace_.strings.intern(rows.text(4))
                            : rows.has(5) ? string(rows.number(5))
                                          : StringId{0};
      OpText op = op_text(trace_.strings[text]);
      Event* e = event(rows, op.is_op ? Category::cpu_op : Category::user_annotation);
      if (e == nullptr) continue;
      e->pid = pid_of(rows.number(2));
      e->tid = tid_of(rows.number(2));
      e->name = trace_.strings.intern(op.name);
      e->args = static_cast<uint32_t>(trace_.ops.size());
      OpArgs& args = trace_.ops.emplace_back();
      if (!op.is_op) args.scope = Scope::user_scope;
      args.sequence_number = op.sequence_number;
      if (!op.inputs.empty()) args.inputs = trace_.inputs.intern(std::move(op.inputs));
      args.is_async = type == kStartEnd;  // may overlap others, and end on another thread
    }
    return rows.is_there();
  }

  // A backward op belongs to the thread of the last op of the forward pass with its number.
  void find_backward_ops() {
    std::unordered_map<int64_t, int64_t> forward_tid;
    std::vector<const Event*> ops;
    for (const Event& e : trace_.events)
      if (const OpArgs* args = trace_.op_args(e); args != nullptr && args->sequence_number >= 0)
        ops.push_back(&e);
    std::stable_sort(ops.begin(), ops.end(),
                     [](const Event* a, const Event* b) { return a->ts_ns < b->ts_ns; });
    for (const Event* e : ops) {
      OpArgs& args = trace_.ops[e->args];
      const std::string_view name = trace_.name(*e);
      if (!is_backward(name)) {
        if (name.starts_with("aten::")) forward_tid[args.sequence_number] = e->tid;
        continue;
      }
      const auto found = forward_tid.find(args.sequence_number);
      if (found == forward_tid.end()) continue;
      args.scope = Scope::backward_function;
      args.fwd_tid = found->second;
    }
    link_forward_backward(trace_);
  }

  void read_devices() {
    TableRows rows(db_, "TARGET_INFO_GPU",
                   {"id", "name", "totalMemory", "smMajor", "smMinor", "smCount", "threadsPerWarp",
                    "maxThreadsPerBlock", "maxShmemPerBlock", "maxShmemPerBlockOptin",
                    "maxShmemPerSm", "maxRegistersPerBlock", "maxRegistersPerSm"});
    while (rows.next()) {
      const auto small = [&](int column) { return static_cast<int32_t>(rows.number(column)); };
      trace_.devices.push_back({.id = small(0),
                                .name = std::string(rows.text(1)),
                                .total_global_mem_bytes = rows.number(2),
                                .compute_major = small(3),
                                .compute_minor = small(4),
                                .max_threads_per_block = small(7),
                                .regs_per_block = small(11),
                                .warp_size = small(6),
                                .shared_mem_per_block_bytes = rows.number(8),
                                .num_sms = small(5),
                                .regs_per_multiprocessor = small(12),
                                .shared_mem_per_block_optin_bytes = rows.number(9),
                                .shared_mem_per_multiprocessor_bytes = rows.number(10)});
    }
  }

  void read_start() {
    TableRows rows(db_, "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"});
    if (rows.next()) trace_.base_time_ns = rows.number(0);
  }

  sqlite3* db_;
  const ReadOptions& options_;
  Trace trace_;
  std::unordered_map<int64_t, StringId> strings_;
};

Result<Trace> read_database(sqlite3* db, const std::string& name, const ReadOptions& options) {
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, kMostValueBytes);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  try {
    NsysReader reader(db, options);
    if (!reader.read())
      return Failure{FailureCode::not_a_trace,
                     name +
                         ": expected a trace, got an SQLite database without tables of Nsight "
                         "Systems (CUPTI_ACTIVITY_KIND_KERNEL, ..., NVTX_EVENTS)"};
    Trace trace = reader.take();
    trace.import.path = name;
    return trace;
  } catch (Broken& broken) {
    std::replace(broken.what.begin(), broken.what.end(), '\n', ' ');  // it quotes the schema
    return Failure{
        FailureCode::not_a_trace,
        name + ": expected a trace, got an SQLite database that cannot be read: " + broken.what};
  }
}

}  // namespace

Result<Trace> read_nsys(const std::string& path, const ReadOptions& options) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READONLY, nullptr);
  const Database db(raw);
  if (code != SQLITE_OK)
    return Failure{FailureCode::not_a_trace,
                   path + ": expected a trace, got an SQLite database that cannot be opened: " +
                       (raw == nullptr ? "no memory" : sqlite3_errmsg(raw))};
  Result<Trace> trace = read_database(db.get(), path, options);
  std::error_code error;
  if (trace) {
    const auto bytes = std::filesystem::file_size(path, error);
    trace.value().import.file_bytes = error ? 0 : static_cast<int64_t>(bytes);
    trace.value().import.text_bytes = trace.value().import.file_bytes;
  }
  return trace;
}

Result<Trace> read_nsys_bytes(std::string_view bytes, const std::string& name,
                              const ReadOptions& options) {
  sqlite3* raw = nullptr;
  sqlite3_open_v2(":memory:", &raw, SQLITE_OPEN_READWRITE, nullptr);
  const Database db(raw);
  // Read in place: SQLite does not write a database that is read-only.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  if (raw == nullptr ||
      sqlite3_deserialize(raw, "main", data, size, size, SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    return Failure{FailureCode::not_a_trace,
                   name + ": expected a trace, got an SQLite database that cannot be opened"};
  Result<Trace> trace = read_database(db.get(), name, options);
  if (trace) trace.value().import.file_bytes = trace.value().import.text_bytes = size;
  return trace;
}

}  // namespace epilogue::trace
