// SPDX-License-Identifier: Apache-2.0
// The schema's pools and name tables.
#include "epilogue/trace/event.h"

#include <algorithm>

#include "base/assert.h"
#include "trace/json_text.h"

namespace epilogue::trace {
namespace {

static_assert(sizeof(Event) == 56, "a trace has millions of events: keep them within a cache line");

// In the order of Category.
constexpr std::array<std::string_view, kCategories> kCategoryNames = {
    "cpu_op",     "user_annotation", "gpu_user_annotation", "kernel",
    "gpu_memcpy", "gpu_memset",      "cuda_runtime",        "cuda_driver",
    "cuda_sync",  "cuda_event",      "cpu_instant_event",   "python_function",
    "overhead",   "collective_comm", "cpu_kernel_share",    "other"};

// Three months, Kineto's constant: small enough that a relative time in microseconds with three
// decimals fits a double.
constexpr int64_t kBaseQuantum_ns = 7'889'238LL * 1'000'000'000;

template <class Table>
const auto* entry(const Table& table, const Event& event) {
  return event.args < table.size() ? &table[event.args] : nullptr;
}

}  // namespace

StringPool::StringPool() { intern(""); }

StringId StringPool::intern(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  EPI_ASSERT(strings_.size() < kNone, "string ids are 32 bits");
  const auto id = static_cast<StringId>(strings_.size());
  ids_.emplace(strings_.emplace_back(text), id);
  return id;
}

std::optional<StringId> StringPool::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

uint32_t InputsPool::intern(std::vector<OpInput> inputs) {
  std::string key;
  append_inputs_json(key, inputs);
  const auto [place, is_new] =
      ids_.try_emplace(std::move(key), static_cast<uint32_t>(lists_.size()));
  if (is_new) lists_.push_back(std::move(inputs));
  return place->second;
}

std::string_view category_name(Category category) {
  return kCategoryNames[static_cast<size_t>(category)];
}

std::optional<Category> category_from_name(std::string_view name) {
  const auto found = std::find(kCategoryNames.begin(), kCategoryNames.end(), name);
  if (found == kCategoryNames.end()) return std::nullopt;
  return static_cast<Category>(found - kCategoryNames.begin());
}

bool is_device_category(Category category) {
  return is_device_work(category) || category == Category::gpu_user_annotation ||
         category == Category::cuda_sync;
}

bool is_device_work(Category category) {
  return category == Category::kernel || category == Category::gpu_memcpy ||
         category == Category::gpu_memset;
}

bool is_launch_category(Category category) {
  return category == Category::cuda_runtime || category == Category::cuda_driver;
}

const OpArgs* Trace::op_args(const Event& event) const {
  const bool is_op =
      event.category == Category::cpu_op || event.category == Category::user_annotation;
  return is_op ? entry(ops, event) : nullptr;
}

const KernelArgs* Trace::kernel_args(const Event& event) const {
  return is_device_work(event.category) ? entry(kernels, event) : nullptr;
}

int64_t base_time_ns(int64_t now_unix_ns) { return now_unix_ns - now_unix_ns % kBaseQuantum_ns; }

}  // namespace epilogue::trace
