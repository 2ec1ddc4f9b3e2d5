// SPDX-License-Identifier: Apache-2.0
// A memory snapshot's answer.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/units.h"
#include "epilogue/base/error.h"
#include "explain/answer/load.h"
#include "explain/render/documents.h"
#include "explain/sections/snapshot_sections.h"

namespace epilogue::trace {
namespace {

Result<MemorySnapshot> load_snapshot(const TraceInput& input, const AnswerHooks& hooks) {
  const std::function<void(int64_t, int64_t)> watch =
      hooks.watch_reading ? hooks.watch_reading() : nullptr;
  const auto progress = [&](int64_t done, int64_t total) {
    if (watch) watch(done, total);
    poll(hooks);
  };
  const std::string& name = input.name.empty() ? input.path : input.name;
  Result<MemorySnapshot> snapshot = input.bytes
                                        ? read_memory_snapshot_bytes(*input.bytes, name, progress)
                                        : read_memory_snapshot(input.path, progress);
  if (snapshot && !input.name.empty()) snapshot.value().path = name;
  return snapshot;
}

void keep_device(SnapshotAnswer& answer, int device) {
  std::vector<DeviceMemoryReport>& devices = answer.report.devices;
  std::string known;
  for (const DeviceMemoryReport& d : devices)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", d.device);
  std::erase_if(devices, [device](const DeviceMemoryReport& d) { return d.device != device; });
  if (devices.empty())
    throw Error(fmt::format("expected one of the snapshot's devices ({}), got {}",
                            known.empty() ? "it has none" : known, device));
}

}  // namespace

Result<Answer> memory_answer(const TraceInput& input, const MemoryAnswerOptions& options,
                             const AnswerHooks& hooks) {
  const Result<MemorySnapshot> snapshot = load_snapshot(input, hooks);
  if (!snapshot) return snapshot.failure();
  auto answer = std::make_shared<SnapshotAnswer>();
  answer->report = memory_report(snapshot.value());
  poll(hooks);
  if (options.against) {
    const Result<MemorySnapshot> before = load_snapshot(*options.against, hooks);
    if (!before) return before.failure();
    answer->before_path = before.value().path;
    answer->diffs = memory_diff(before.value(), memory_report(before.value()), snapshot.value(),
                                answer->report);
  }
  if (options.device) keep_device(*answer, *options.device);
  Document document = snapshot_document(*answer, options.top);
  if (!options.page.empty()) {
    const std::string& path = answer->report.path;
    const std::string page = snapshot_html_report(
        *answer, options.title.empty() ? path.substr(path.rfind('/') + 1) : options.title);
    if (const Status written = write_file(options.page, page); !written) return written.failure();
    document.push_back(Paragraph{
        fmt::format("{}: {}", options.page, format_bytes(static_cast<double>(page.size())))});
  }
  return Answer(std::move(document), answer);
}

}  // namespace epilogue::trace
