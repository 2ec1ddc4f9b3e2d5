// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: whatever a trace holds, each trace command gives an answer or a failure with a
// message, and the answers hold together. The first byte chooses the part of the trace.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "epilogue/trace/answer.h"

namespace {

using nlohmann::json;
namespace trace = epilogue::trace;

void require(bool holds) {
  if (!holds) std::abort();
}

json checked(const trace::Answer& answer) {
  require(!answer.text().empty());
  require(!answer.markdown().empty());
  const std::string text = answer.json();
  require(json::accept(text));
  return json::parse(text);
}

template <class T>
bool is_answer(const epilogue::Result<T>& result) {
  if (!result) require(!result.failure().message.empty());
  return result.ok();
}

bool is_share(const json& document, const char* key) {
  const auto value = document.find(key);
  if (value == document.end() || value->is_null()) return true;
  return value->get<double>() >= 0 && value->get<double>() <= 100.0001;
}

void check_explanation(const json& j) {
  require(is_share(j, "gpu_busy_pct") && is_share(j, "gpu_idle_pct"));
  for (const json& finding : j.value("findings", json::array())) {
    require(!finding.at("id").get<std::string>().empty());
    const json cost = finding.value("cost_us", json());
    const json remains = finding.value("remains_us", json());
    if (cost.is_number()) require(cost.get<double>() >= 0);
    if (cost.is_number() && remains.is_number())
      require(remains.get<double>() >= 0 && remains.get<double>() <= cost.get<double>() + 0.01);
  }
}

trace::TraceInput part_of(std::string_view bytes, uint8_t choice) {
  trace::TraceInput input{.bytes = bytes, .name = "fuzz"};
  if (choice & 1) input.step = choice >> 4;
  if (choice & 2) input.from_ms = (choice >> 4) * 0.05;
  if (choice & 4) input.to_ms = (choice >> 4) * 0.1;
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 32'768) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const trace::TraceInput input = part_of(bytes, data[0]);
  const bool all = (data[0] & 8) != 0;  // else fewer inputs would be tried in the same time
  const auto explained = trace::explain_answer(input, {.modules = all});
  if (is_answer(explained)) check_explanation(checked(explained.value()));
  const auto table = trace::table_answer(input, {.group_by_input_shape = true});
  if (is_answer(table)) checked(table.value());
  if (!all) return 0;
  if (const auto quantities = trace::quantities_answer(input); is_answer(quantities))
    checked(quantities.value());
  if (const auto diff = trace::diff_answer(part_of(bytes, 0), input); is_answer(diff))
    checked(diff.value());
  return 0;
}
