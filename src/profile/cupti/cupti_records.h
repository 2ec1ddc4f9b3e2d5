// SPDX-License-Identifier: Apache-2.0
// CUPTI's activity records as DeviceActivity. No library is called: records are plain structs.
#pragma once

#include <cupti.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile/device_tracer.h"

namespace epilogue::profiler {

// Collects the records of one session.
class CuptiRecords {
 public:
  // The name of an API function: cuptiGetCallbackName, or a test's.
  using FunctionName = std::function<std::string(CUpti_CallbackDomain, CUpti_CallbackId)>;
  explicit CuptiRecords(FunctionName function_name) : function_name_(std::move(function_name)) {}

  // Kinds that are not known are left out.
  void add(const CUpti_Activity& record);
  // All activities, with the ops of their calls.
  std::vector<DeviceActivity> take();

 private:
  void add_kernel(const CUpti_ActivityKernel10& r);
  void add_copy(const CUpti_ActivityMemcpy6& r);
  void add_fill(const CUpti_ActivityMemset4& r);
  void add_call(const CUpti_ActivityAPI& r, bool is_runtime);
  void add_sync(const CUpti_ActivitySynchronization2& r);
  void add_overhead(const CUpti_ActivityOverhead3& r);

  FunctionName function_name_;
  std::vector<DeviceActivity> activities_;
  std::unordered_map<uint32_t, uint64_t> op_of_;  // by correlation
};

// "void f<int>(float*)" of "_Z1fIiEvPf"; names that are not mangled stay.
std::string demangled(const char* name);

}  // namespace epilogue::profiler
