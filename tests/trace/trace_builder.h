// SPDX-License-Identifier: Apache-2.0
// Small traces for tests, written as they read: op("aten::mm", 10, 50).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace::testing {

constexpr int32_t kHostPid = 4711;
constexpr int64_t kUs = 1000;  // in nanoseconds

inline OpInput tensor(std::vector<int64_t> dims, std::string type = "float") {
  OpInput input;
  input.strides.assign(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) input.strides[i - 1] = input.strides[i] * dims[i];
  input.dims = std::move(dims);
  input.type = std::move(type);
  return input;
}
inline OpInput scalar(std::string value, std::string type = "Scalar") {
  return OpInput{.type = std::move(type), .concrete = std::move(value)};
}
inline OpInput tensor_list(std::vector<OpInput> tensors) {
  return OpInput{.list = std::move(tensors), .is_list = true, .type = "TensorList"};
}

// Times are in nanoseconds, [start, end]. References returned are valid until the next call.
class TraceBuilder {
 public:
  Trace trace;

  Event& event(Category category, std::string_view name, int64_t start_ns, int64_t end_ns,
               int64_t tid = 1) {
    Event e;
    e.ts_ns = start_ns;
    e.dur_ns = end_ns - start_ns;
    e.tid = tid;
    e.pid = is_device_category(category) ? 0 : kHostPid;
    e.name = trace.strings.intern(name);
    e.category = category;
    trace.events.push_back(e);
    return trace.events.back();
  }

  // An op with the next External id; its args are trace.ops.back().
  Event& op(std::string_view name, int64_t start_ns, int64_t end_ns, int64_t tid = 1,
            Category category = Category::cpu_op) {
    Event& e = event(category, name, start_ns, end_ns, tid);
    e.external_id = ++last_id_;
    e.args = static_cast<uint32_t>(trace.ops.size());
    trace.ops.emplace_back().ev_idx = last_id_;
    return e;
  }
  Event& annotation(std::string_view name, int64_t start_ns, int64_t end_ns, int64_t tid = 1) {
    return op(name, start_ns, end_ns, tid, Category::user_annotation);
  }
  OpArgs& last_args() { return trace.ops.back(); }
  void inputs(std::vector<OpInput> list) {
    last_args().inputs = trace.inputs.intern(std::move(list));
  }

  // A launch call and its kernel in the same interval, as our CPU device has them, linked to the op
  // of that External id. The kernel's args are trace.kernels.back().
  Event& kernel(std::string_view name, int64_t start_ns, int64_t end_ns, int64_t op_id,
                int64_t tid = 1) {
    Event& launch = event(Category::cuda_runtime, "epiLaunchKernel", start_ns, end_ns, tid);
    launch.correlation = ++last_correlation_;
    launch.external_id = op_id;
    Event& e = event(Category::kernel, name, start_ns, end_ns, 0);
    e.correlation = last_correlation_;
    e.external_id = op_id;
    e.args = static_cast<uint32_t>(trace.kernels.size());
    trace.kernels.emplace_back();
    return e;
  }

  MemoryEvent& memory(int64_t ts_ns, int64_t bytes, DeviceType type = DeviceType::cpu,
                      int64_t tid = 1) {
    MemoryEvent m;
    m.ts_ns = ts_ns;
    m.pid = kHostPid;
    m.tid = tid;
    m.bytes = bytes;
    m.device_type = type;
    m.addr = 0x7f0000001000;
    m.total_allocated = allocated_ += bytes;
    trace.memory.push_back(m);
    return trace.memory.back();
  }

  int64_t last_id() const { return last_id_; }

 private:
  int64_t last_id_ = 0;
  int64_t last_correlation_ = 0;
  int64_t allocated_ = 0;
};

}  // namespace epilogue::trace::testing
