// SPDX-License-Identifier: Apache-2.0
// A user of the installed trace libraries: build a trace, write it, print its table.
#include <epilogue/trace.h>

#include <cstdio>
#include <string>

int main() {
  namespace trace = epilogue::trace;
  trace::Trace recorded;
  trace::Event op;
  op.name = recorded.strings.intern("aten::mm");
  op.category = trace::Category::cpu_op;
  op.dur_ns = 4'000;
  op.tid = op.pid = 1;
  op.external_id = 1;
  op.args = 0;
  recorded.ops.emplace_back();
  recorded.events.push_back(op);

  const std::string table = trace::format_table(trace::key_averages(recorded));
  const bool listed = table.find("aten::mm") != std::string::npos;
  const bool written = trace::write_chrome_trace(recorded, "consumer.json.gz").ok();
  std::printf("op listed: %d, trace written: %d\n", listed, written);
  return listed && written ? 0 : 1;
}
