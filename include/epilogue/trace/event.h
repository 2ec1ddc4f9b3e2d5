// SPDX-License-Identifier: Apache-2.0
// The schema of a trace: compact events, interned strings, typed side tables for their args. The
// recorder and the reader fill it, the writer and every analysis read it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "epilogue/base/device_type.h"
#include "epilogue/base/memory_category.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

using StringId = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;

// Every distinct string once. Id 0 is "". Views stay valid as long as the pool, also when it is
// moved. Not thread-safe.
class StringPool {
 public:
  StringPool();
  StringPool(StringPool&&) noexcept = default;
  StringPool& operator=(StringPool&&) noexcept = default;

  StringId intern(std::string_view text);
  // The id of a string that may not be there; adds nothing.
  std::optional<StringId> find(std::string_view text) const;
  // Precondition: id came from this pool.
  std::string_view operator[](StringId id) const { return strings_[id]; }
  size_t size() const { return strings_.size(); }

 private:
  std::deque<std::string> strings_;  // a deque: the views in ids_ must survive growth
  std::unordered_map<std::string_view, StringId> ids_;
};

// Kinds of events; the names are Kineto's (category_name), except kCpuKernelShare, our own: the
// part of a CPU kernel that one thread of the pool ran.
enum class Category : uint8_t {
  cpu_op,
  user_annotation,
  gpu_user_annotation,
  kernel,
  gpu_memcpy,
  gpu_memset,
  cuda_runtime,
  cuda_driver,
  cuda_sync,
  cuda_event,
  cpu_instant_event,
  python_function,
  overhead,
  collective_comm,
  cpu_kernel_share,
  other,
};
inline constexpr int kCategories = static_cast<int>(Category::other) + 1;

std::string_view category_name(Category category);  // kCpuOp -> "cpu_op"
std::optional<Category> category_from_name(std::string_view name);
// True for what runs on a device's stream: kernels, copies, fills and annotations' device side.
bool is_device_category(Category category);
// True for kernels, copies and fills.
bool is_device_work(Category category);
// True for the calls that start device work: cuda_runtime and cuda_driver.
bool is_launch_category(Category category);

// One span (56 bytes). Times are relative to Trace::base_time_ns. `args` indexes the side table of
// the category: ops (cpu_op, user_annotation), kernels (kernel, gpu_memcpy, gpu_memset), python
// (python_function), runtime_calls (cuda_runtime, cuda_driver), syncs (cuda_sync).
struct Event {
  int64_t ts_ns = 0;
  int64_t dur_ns = 0;
  int64_t tid = 0;          // OS thread, or the stream for device work
  int64_t correlation = 0;  // joins a launch call and its kernels; 0: none
  int64_t external_id =
      0;  // of an op: its id; of the others: the id of the op that launched them; 0: none
  StringId name = 0;
  int32_t pid = 0;  // OS process, or the device index for device work
  uint32_t args = kNone;
  Category category = Category::other;

  int64_t end_ns() const { return ts_ns + dur_ns; }
};

// One argument of an op as record_shapes shows it. A tensor has `dims`, a tensor list has `list`
// (one element per tensor), anything else has neither.
struct OpInput {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  std::vector<OpInput> list;
  bool is_list = false;
  std::string type;      // "float", "c10::BFloat16", "c10::Half", "double", "long int", "Scalar",
                         // "TensorList", ""
  std::string concrete;  // "" for tensors; else the value as text: "1", "[1]", "False"

  bool operator==(const OpInput&) const = default;
};

// Argument lists of ops, every distinct list once (an op in a loop repeats its shapes).
class InputsPool {
 public:
  uint32_t intern(std::vector<OpInput> inputs);
  std::span<const OpInput> operator[](uint32_t id) const { return lists_[id]; }
  size_t size() const { return lists_.size(); }

 private:
  std::deque<std::vector<OpInput>> lists_;
  std::unordered_map<std::string, uint32_t> ids_;
};

// PyTorch's RecordScope, with its values.
enum class Scope : uint8_t { function = 0, backward_function = 1, user_scope = 7 };

// Args of ops and annotations.
struct OpArgs {
  uint32_t inputs = kNone;  // in Trace::inputs; kNone: shapes were not recorded
  StringId overload_name = 0;
  StringId stack = 0;  // frames, innermost first, joined by ';'
  StringId module_hierarchy = 0;
  int64_t record_function_id = 0;
  int64_t ev_idx = -1;           // -1: none
  int64_t sequence_number = -1;  // -1: none
  int64_t fwd_tid = 0;           // thread of the forward op that a backward op belongs to
  Scope scope = Scope::function;
  bool is_async = false;  // flagged so, or ended on another thread than it started on
  // The args that have no field here, as a raw JSON object; 0: none. Kept by the reader for the ops
  // of collectives ("Collective name", "In msg nelems", ...) and for Triton's launch wrappers
  // ("kernel_file", "kernel_num_gb", "grid", ...).
  StringId other_args = 0;
  StringId fused_ops = 0;  // as KernelArgs::fused_ops, of the kernel that the op launched
};

// Args of device work. Fields that are negative are unknown and left out of the file.
struct KernelArgs {
  int32_t device = 0;
  int32_t context = 0;
  int64_t stream = 0;
  int64_t queued = 0;
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;
  double blocks_per_sm = -1;
  double warps_per_sm = -1;
  int32_t est_occupancy_pct = -1;
  std::array<int64_t, 3> grid = {1, 1, 1};   // a CPU kernel: its blocks (tasks) per dimension
  std::array<int64_t, 3> block = {1, 1, 1};  // a CPU kernel: elements of one block per dimension
  int64_t graph_id = -1;
  int64_t graph_node_id = -1;
  int64_t bytes = -1;  // read and written; of a copy: copied
  int64_t flops = -1;
  int32_t threads = -1;  // threads that shared a CPU kernel
  bool has_grid = true;  // false: the trace does not give grid and block (ROCm's graph kernels)
  // As OpArgs::other_args: "occupancy", collectives' args, "kind" of a copy.
  StringId other_args = 0;
  // Our fused kernels only: the ATen ops that the kernel stands for, "aten::mm, aten::gelu", in
  // their order; 0: it is its op's own.
  StringId fused_ops = 0;
  int64_t unfused_bytes = -1;  // what those ops would read and write one by one

  bool operator==(const KernelArgs&) const = default;
};

struct RuntimeArgs {
  int32_t cbid = -1;
  int64_t stream = -1;       // HIP launches
  int64_t bytes = -1;        // HIP copies
  StringId kernel_name = 0;  // HIP launches

  bool operator==(const RuntimeArgs&) const = default;
};

struct SyncArgs {
  int64_t stream = -1;
  // If the wait is for an event: the stream that it was recorded on, and the correlation of the
  // call that recorded it.
  int64_t wait_on_stream = -1;
  int64_t wait_on_record = 0;
};

struct PythonArgs {
  int64_t id = 0;
  int64_t parent_id = -1;  // -1: null
  int64_t module_id = -1;  // -1: not a module's frame
  int64_t ev_idx = -1;
};

using epilogue::DeviceType;
using epilogue::kMemoryCategories;
using epilogue::MemoryCategory;

// An allocation (bytes > 0), a free (bytes < 0), or a failed allocation (`[OutOfMemory]`).
struct MemoryEvent {
  int64_t ts_ns = 0;
  int64_t tid = 0;
  int32_t pid = 0;
  DeviceType device_type = DeviceType::cpu;
  int32_t device_id = -1;  // -1 for the CPU
  bool out_of_memory = false;
  MemoryCategory category = MemoryCategory::unknown;  // PyTorch's traces do not say it
  uint64_t addr = 0;
  int64_t bytes = 0;
  int64_t total_allocated = 0;
  int64_t total_reserved = 0;
  int64_t ev_idx = -1;
};

// An arrow from a forward op to the backward op it caused. (Arrows from launch to kernel are not
// stored: the writer derives them from the correlations.)
struct Flow {
  struct End {
    int64_t ts_ns = 0;
    int64_t tid = 0;
    int32_t pid = 0;
  };
  int64_t id = 0;
  End start;
  End end;
};

struct Process {
  int32_t pid = 0;
  std::string name;    // "epilogue"
  std::string labels;  // "CPU", "CPU 0 (synchronous: the launch is the call)", "GPU 0"
  int64_t sort_index = 0;
};

struct Thread {
  int32_t pid = 0;
  int64_t tid = 0;
  std::string name;  // "thread 4711 (epilogue)", "stream 0 "
  int64_t sort_index = 0;
};

// An entry of deviceProperties, with Kineto's fields. For a CPU as device: num_sms are its cores,
// the others what fits best or 0.
struct DeviceProperties {
  int32_t id = 0;
  std::string name = {};
  int64_t total_global_mem_bytes = 0;
  int32_t compute_major = 0;
  int32_t compute_minor = 0;
  int32_t max_threads_per_block = 0;
  int32_t max_threads_per_multiprocessor = 0;
  int32_t regs_per_block = 0;
  int32_t warp_size = 0;
  int64_t shared_mem_per_block_bytes = 0;
  int32_t num_sms = 0;
  int32_t regs_per_multiprocessor = 0;
  int64_t shared_mem_per_block_optin_bytes = 0;
  int64_t shared_mem_per_multiprocessor_bytes = 0;
};

// The profiler's options; each true one becomes a metadata key of value 1.
struct Recorded {
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_stack = false;
  bool with_flops = false;
  bool with_modules = false;
};

// One reason why events were not read, or were mended before they were.
struct ImportNote {
  std::string id;      // "bad-string", "truncated", "number-out-of-range": stable, for scripts
  std::string detail;  // one line for people
  int64_t count = 0;
  int64_t first_offset = 0;  // byte offset in the (decompressed) text
  // The repair may have made numbers wrong or incomplete. Worth a warning.
  bool is_doubtful = false;
};

// Counts of what the reader met. All zero for a trace that was recorded, not read.
struct ImportReport {
  std::string path;
  int64_t file_bytes = 0;
  int64_t text_bytes = 0;  // decompressed
  bool is_gzip = false;
  bool is_truncated = false;  // the text or the gzip stream ends early
  bool is_bare_array = false;
  int64_t events = 0;  // objects of the event list that could be used, of every kind ("ph")
  int64_t skipped_events = 0;
  int64_t python_functions_left_out = 0;  // by ReadOptions, not for a fault
  std::vector<ImportNote> skips;          // their counts add up to skipped_events
  std::vector<ImportNote> repairs;        // read all the same
};

// Which part of a longer trace this is (select.h), and the rest of it: what the device and the host
// did in that part is unknown without it (work launched before the part runs in it).
struct Selection {
  // [start, end); an end that was not asked for is the type's limit.
  int64_t start_ns = std::numeric_limits<int64_t>::min();
  int64_t end_ns = std::numeric_limits<int64_t>::max();
  // The ops, annotations, calls and device work that are not of the part, in any order.
  std::vector<Event> outside;
};

// A Python frame that was read beside the events (PythonFrames::beside).
struct PythonFrame {
  int64_t ts_ns = 0;
  int64_t dur_ns = 0;
  int64_t tid = 0;
  int32_t pid = 0;
  StringId name = 0;

  int64_t end_ns() const { return ts_ns + dur_ns; }
};

struct Trace {
  StringPool strings;
  InputsPool inputs;
  std::vector<Event> events;  // in any order
  // Side tables, by Event::args. Events of equal args may share an entry of `kernels` and
  // `runtime_calls`: change none through one event.
  std::vector<OpArgs> ops;
  std::vector<KernelArgs> kernels;
  std::vector<RuntimeArgs> runtime_calls;
  std::vector<SyncArgs> syncs;
  std::vector<PythonArgs> python;
  std::vector<PythonFrame> frames;  // in any order; a part of a trace (select_step) has none
  std::vector<MemoryEvent> memory;  // in any order
  std::vector<Flow> flows;
  std::vector<Process> processes;
  std::vector<Thread> threads;
  std::vector<DeviceProperties> devices;
  Recorded recorded;
  std::vector<std::pair<std::string, std::string>>
      metadata;  // key, value as raw JSON; no duplicates

  int64_t base_time_ns = 0;  // Unix time of ts 0
  int64_t start_ns = 0;      // the recorded window, relative to the base
  int64_t end_ns = 0;
  std::string span_name = "PyTorch Profiler";
  // Names the device columns of tables: "CUDA" for PyTorch's traces, "KERNEL" for our CPU device,
  // "TPU" for a TPU's,
  // "" when no device was profiled.
  std::string device_label = "CUDA";
  ImportReport import;
  std::optional<Selection> selection;  // empty: the trace is whole

  std::string_view name(const Event& event) const { return strings[event.name]; }
  // The side-table entry, or null when the event has none (or is of another kind).
  const OpArgs* op_args(const Event& event) const;
  const KernelArgs* kernel_args(const Event& event) const;
};

// Times in a file are relative to this: now, floored to a multiple of three months (7,889,238 s),
// so that they fit a double and ranks that ran in the same quarter line up.
int64_t base_time_ns(int64_t now_unix_ns);

// Appends the forward-to-backward arrows that sequence numbers imply: for each op of scope
// kBackwardFunction with a sequence number, one arrow from the last forward op that has the same
// (fwd_tid, sequence number). Ids count up from 1.
void link_forward_backward(Trace& trace);

}  // namespace epilogue::trace

#pragma GCC visibility pop
