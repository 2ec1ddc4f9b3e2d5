// SPDX-License-Identifier: Apache-2.0
// Writes SEED.json, SEED.json.gz and the tables of one random trace: write_random_trace SEED DIR.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "base/file.h"
#include "epilogue/trace/file.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "trace/trace_builder.h"

namespace epilogue::trace {
namespace {

class RandomTrace {
 public:
  explicit RandomTrace(unsigned seed) : random_(seed) {}

  Trace make() {
    // Odd times and threads that run at once: memory must count across threads.
    for (int64_t tid = 1; tid <= 3; ++tid) {
      int64_t at = 1'000'000 + number(0, 5000);
      for (int step = 0; step < 6; ++step) {
        const int64_t end = at + number(20'000, 60'000);
        b_.annotation("ProfilerStep#" + std::to_string(step), at, end, tid);
        nest(at, end, tid, 0, 0);
        b_.event(Category::gpu_user_annotation, "ProfilerStep#" + std::to_string(step), at + 10,
                 end, tid);
        at = end + number(0, 3);  // steps may touch
      }
    }
    for (int i = 0; i < 400; ++i) add_memory();
    b_.event(Category::overhead, "Buffer Flush", 1'000'500, 1'020'000, 0).pid = -1;
    b_.event(Category::kernel, "launched before the window", 1'000'001, 1'000'900, 7);
    b_.trace.recorded = {.record_shapes = true, .profile_memory = true, .with_flops = true};
    b_.trace.device_label = "KERNEL";
    b_.trace.start_ns = 999'000;
    b_.trace.end_ns = 2'000'000;
    std::shuffle(b_.trace.events.begin(), b_.trace.events.end(), random_);
    return std::move(b_.trace);
  }

 private:
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // Children of [start, end] one after the other, at times filling it to the nanosecond.
  void nest(int64_t start, int64_t end, int64_t tid, int64_t op_id, int depth) {
    int64_t at = start + number(0, 2) * number(0, 50);
    while (at < end) {
      const int64_t child_end =
          number(0, 5) == 0 ? end : std::min(end, at + number(0, (end - start) / 2));
      if (op_id != 0 && number(0, 2) == 0) {
        b_.kernel(kKernels[pick(kKernels)], at, child_end, op_id, tid);
      } else {
        add_op(at, child_end, tid, op_id, depth);
      }
      at = child_end + number(0, 30);
      if (child_end == end || number(0, 3) == 0) return;
    }
  }

  void add_op(int64_t start, int64_t end, int64_t tid, int64_t op_id, int depth) {
    if (number(0, 9) == 0) {
      b_.annotation("label", start, end, tid);
    } else {
      // A child of its parent's name now and then: some collapse.
      const size_t name = number(0, 3) == 0 ? last_name_ : pick(kOps);
      last_name_ = name;
      b_.op(kOps[name], start, end, tid);
      op_id = b_.last_id();
      add_inputs(kOps[name]);
      if (number(0, 40) == 0) b_.last_args().is_async = true;
    }
    // Not below what is no op of the tree: its launches would stand below the op around it.
    const bool is_in_tree = kOps[last_name_] != "aten::is_leaf" && !b_.last_args().is_async;
    if (depth < 4 && is_in_tree) nest(start, end, tid, op_id, depth + 1);
  }

  void add_inputs(std::string_view op) {
    using testing::scalar;
    using testing::tensor;
    if (number(0, 5) == 0) return;  // not recorded
    const OpInput a = tensor({number(0, 3), 8});
    const OpInput b = tensor({8, number(1, 3)});
    if (op == "aten::addmm") return b_.inputs({tensor({4}), a, b, scalar("1"), scalar("1")});
    if (op == "aten::bmm") return b_.inputs({tensor({2, 3, 4}), tensor({2, 4, 5})});
    if (op == "aten::cat") return b_.inputs({testing::tensor_list({a, b}), scalar("0")});
    b_.inputs({a, b});
  }

  void add_memory() {
    constexpr std::array kTypes = {DeviceType::cpu, DeviceType::cuda, DeviceType::mkldnn,
                                   DeviceType::private_use1, DeviceType::xpu};
    // Beyond the steps as well, and often at the very edge of an event.
    int64_t at = number(990'000, 1'500'000);
    if (number(0, 1) == 0) {
      const Event& event = b_.trace.events[static_cast<size_t>(
          number(0, static_cast<int64_t>(b_.trace.events.size()) - 1))];
      at = number(0, 1) == 0 ? event.ts_ns : event.end_ns();
    }
    b_.memory(at, number(-100'000, 100'000), kTypes[pick(kTypes)], number(1, 3)).out_of_memory =
        number(0, 30) == 0;
  }

  template <class List>
  size_t pick(const List& list) {
    return static_cast<size_t>(number(0, static_cast<int64_t>(list.size()) - 1));
  }

  static constexpr std::array<std::string_view, 9> kOps = {
      "aten::linear", "aten::addmm", "aten::mm",  "aten::bmm",    "aten::mul",
      "aten::add",    "aten::t",     "aten::cat", "aten::is_leaf"};
  static constexpr std::array<std::string_view, 3> kKernels = {"gemm", "gelu \"tanh\"", "mul"};

  std::mt19937 random_;
  testing::TraceBuilder b_;
  size_t last_name_ = 0;
};

int write(unsigned seed, const std::string& stem) {
  const Trace trace = RandomTrace(seed).make();
  write_chrome_trace(trace, stem + ".json").value();
  write_chrome_trace(trace, stem + ".json.gz").value();
  write_file(stem + ".table.json", table_json(key_averages(trace))).value();
  write_file(stem + ".shapes.json", table_json(key_averages(trace, {.group_by_input_shape = true})))
      .value();
  return 0;
}

}  // namespace
}  // namespace epilogue::trace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return epilogue::trace::write(static_cast<unsigned>(std::atoi(argv[1])),
                                std::string(argv[2]) + "/" + argv[1]);
}
