// SPDX-License-Identifier: Apache-2.0
// CUPTI, found at run time. Its buffers are filled by the driver's threads; the records are read
// when the session ends.
#include <cupti.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "base/clock.h"
#include "base/dynamic_library.h"
#include "core/backend.h"
#include "epilogue/base/error.h"
#include "epilogue/ops.h"
#include "profile/cupti/cupti_records.h"
#include "profile/device_tracer.h"

namespace epilogue::profiler {
namespace {

// Kineto's buffer size; a record takes some 200 bytes.
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kBufferAlignment = 8;  // what CUPTI asks for
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET,
                               CUPTI_ACTIVITY_KIND_RUNTIME,
                               CUPTI_ACTIVITY_KIND_DRIVER,
                               CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                               CUPTI_ACTIVITY_KIND_OVERHEAD,
                               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr CUpti_ExternalCorrelationKind kOpKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

class Cupti final : public DeviceTracer {
 public:
  Cupti()
      : library_({"libcupti.so.13", "libcupti.so.12", "libcupti.so"}, "tracing a device",
                 EPILOGUE_CUDA_LIBRARY_DIR) {
    library_.load(enable_, "cuptiActivityEnable");
    library_.load(disable_, "cuptiActivityDisable");
    library_.load(register_callbacks_, "cuptiActivityRegisterCallbacks");
    library_.load(register_timestamp_, "cuptiActivityRegisterTimestampCallback");
    library_.load(set_thread_id_type_, "cuptiSetThreadIdType");
    library_.load(flush_, "cuptiActivityFlushAll");
    library_.load(next_record_, "cuptiActivityGetNextRecord");
    library_.load(push_, "cuptiActivityPushExternalCorrelationId");
    library_.load(pop_, "cuptiActivityPopExternalCorrelationId");
    library_.load(callback_name_, "cuptiGetCallbackName");
    library_.load(result_string_, "cuptiGetResultString");
    check(set_thread_id_type_(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), "cuptiSetThreadIdType");
    check(register_timestamp_([] { return static_cast<uint64_t>(realtime_ns()); }),
          "cuptiActivityRegisterTimestampCallback");
    check(register_callbacks_(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  }

  void start() override {
    cuda_backend()->synchronize();
    forget_buffers();
    for (const CUpti_ActivityKind kind : kKinds) check(enable_(kind), "cuptiActivityEnable");
    // CUPTI takes milliseconds to get its first buffers, for calls and for kernels: it does so now,
    // not in what is profiled.
    fill_(empty({1}, DType::f32, {DeviceType::cuda, 0}), 0);
    cuda_backend()->synchronize();
    started_ns_ = realtime_ns();
    is_on_ = true;
  }

  std::vector<DeviceActivity> stop() override {
    is_on_ = false;
    cuda_backend()->synchronize();
    check(flush_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    for (const CUpti_ActivityKind kind : kKinds) check(disable_(kind), "cuptiActivityDisable");
    CuptiRecords records([this](CUpti_CallbackDomain domain, CUpti_CallbackId id) {
      const char* name = nullptr;
      if (callback_name_(domain, id, &name) != CUPTI_SUCCESS || name == nullptr)
        return "<unknown " + std::to_string(id) + ">";
      return without_version(name);
    });
    const std::lock_guard<std::mutex> lock(buffers().mutex);
    for (const Buffer& buffer : buffers().full) read(buffer, records);
    for (const Buffer& buffer : buffers().full) std::free(buffer.data);
    buffers().full.clear();
    std::vector<DeviceActivity> activities = records.take();
    std::erase_if(activities, [&](const auto& a) { return a.begin_ns < started_ns_; });
    return activities;
  }

  void push_op(uint64_t op) override {
    if (is_on_) push_(kOpKind, op);
  }
  void pop_op() override {
    uint64_t op = 0;
    if (is_on_) pop_(kOpKind, &op);
  }

 private:
  struct Buffer {
    uint8_t* data;
    size_t valid_bytes;
  };
  struct Buffers {
    std::mutex mutex;
    std::vector<Buffer> full;
  };
  static Buffers& buffers() {
    static auto* all = new Buffers;
    return *all;
  }

  // Called by CUPTI; must not throw.
  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
    *bytes = *buffer != nullptr ? kBufferBytes : 0;
    *most_records = 0;  // as many as fit
  }
  static void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t,
                                   size_t valid_bytes) {
    const std::lock_guard<std::mutex> lock(buffers().mutex);
    buffers().full.push_back({buffer, valid_bytes});
  }

  // Records that came in after the last session ended.
  void forget_buffers() {
    const std::lock_guard<std::mutex> lock(buffers().mutex);
    for (const Buffer& buffer : buffers().full) std::free(buffer.data);
    buffers().full.clear();
  }

  void read(const Buffer& buffer, CuptiRecords& records) const {
    if (buffer.data == nullptr || buffer.valid_bytes == 0) return;
    CUpti_Activity* record = nullptr;
    for (;;) {
      const CUptiResult result = next_record_(buffer.data, buffer.valid_bytes, &record);
      // The end, or a record that a forced flush cut off.
      if (result == CUPTI_ERROR_MAX_LIMIT_REACHED || result == CUPTI_ERROR_INVALID_KIND) return;
      check(result, "cuptiActivityGetNextRecord");
      records.add(*record);
    }
  }

  // "cudaLaunchKernel" of "cudaLaunchKernel_v7000"; "cuLaunchKernelEx" stays.
  static std::string without_version(std::string name) {
    const size_t at = name.rfind("_v");
    if (at != std::string::npos && at + 2 < name.size() &&
        name.find_first_not_of("0123456789", at + 2) == std::string::npos)
      name.erase(at);
    return name;
  }

  void check(CUptiResult result, const char* call) const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    result_string_(result, &text);
    throw Error(std::string("[profile] ") + call + ": " + (text != nullptr ? text : "failed"));
  }

  DynamicLibrary library_;
  bool is_on_ = false;
  int64_t started_ns_ = 0;  // Unix time
  decltype(&cuptiActivityEnable) enable_ = nullptr;
  decltype(&cuptiActivityDisable) disable_ = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks_ = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp_ = nullptr;
  decltype(&cuptiSetThreadIdType) set_thread_id_type_ = nullptr;
  decltype(&cuptiActivityFlushAll) flush_ = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record_ = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_ = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_ = nullptr;
  decltype(&cuptiGetCallbackName) callback_name_ = nullptr;
  decltype(&cuptiGetResultString) result_string_ = nullptr;
};

struct Found {
  DeviceTracer* tracer = nullptr;
  std::string status;
};
const Found& found() {
  static const Found result = [] {
    if (cuda_backend() == nullptr) return Found{nullptr, "there is no device to trace"};
    try {
      return Found{new Cupti, "CUPTI"};
    } catch (const Error& e) {
      return Found{nullptr, e.what()};
    }
  }();
  return result;
}

}  // namespace

DeviceTracer* device_tracer() { return found().tracer; }
std::string device_tracer_status() { return found().status; }

}  // namespace epilogue::profiler
