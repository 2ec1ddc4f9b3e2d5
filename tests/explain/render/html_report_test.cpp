// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/report.h"

#include <nlohmann/json.hpp>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "epilogue/trace/table.h"
#include "explain/gpu_trace.h"
#include "explain/render/html/base64.h"
#include "explain/render/html/page_data.h"
#include "explain/render/unpack.h"
#include "support/test.h"
#include "trace/gzip_bytes.h"
#include "trace/real_traces.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::html_report_test {

using namespace testing;

std::string page_of(const Trace& trace, std::string title = {}, EmbeddedTrace embedded = {}) {
  const Links links = link(trace);
  const Explanation explanation = explain(trace, links);
  return html_report({.trace = trace,
                      .links = links,
                      .explanation = explanation,
                      .title = std::move(title),
                      .embedded = std::move(embedded)});
}

nlohmann::json data_of(std::string_view page) {
  return nlohmann::json::parse(gunzip(from_base64(block(page, "data-report"))));
}

size_t count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Trace one_kernel(std::string_view name) {
  TraceBuilder b;
  const int64_t id = b.op("aten::mm", 0, 5000).external_id;
  b.kernel(name, 1000, 4000, id);
  return std::move(b.trace);
}

TEST(Base64, EqualsTheStandardsVectors) {
  // RFC 4648, section 10.
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(GzipBytes, GivesBackWhatWentIn) {
  std::string bytes;
  for (uint32_t i = 0; i < 3'000'000; ++i) bytes += static_cast<char>(i * 7919 >> 5);
  EXPECT_EQ(gunzip(gzip_bytes(bytes).value()), bytes);
  EXPECT_EQ(gunzip(gzip_bytes("").value()), "");
}

TEST(GzipBytes, GivesNothingAboveTheLimit) {
  const std::string bytes(1000, 'a');
  const size_t size = gzip_bytes(bytes).value().size();
  EXPECT_TRUE(gzip_bytes(bytes, size));
  EXPECT_FALSE(gzip_bytes(bytes, size - 1));
}

TEST(HtmlReport, CarriesTheExplanationTheTableAndTheKernels) {
  const Trace trace = one_kernel("ampere_sgemm_128x64_tn");
  const nlohmann::json data = data_of(page_of(trace, "A title"));
  EXPECT_EQ(data["title"], "A title");
  EXPECT_EQ(data["has_trace"], false);
  EXPECT_EQ(data["explanation"]["kernels"], 1);
  EXPECT_EQ(data["explanation"]["ops"], 1);
  ASSERT_EQ(data["kernels"].size(), 1u);
  const nlohmann::json& kernel = data["kernels"][0];
  EXPECT_EQ(kernel["name"], "ampere_sgemm_128x64_tn");
  EXPECT_EQ(kernel["count"], 1);
  EXPECT_EQ(kernel["total_us"], 3.0);
  EXPECT_EQ(kernel["mean_us"], 3.0);
  EXPECT_EQ(kernel["op"], "aten::mm");
  EXPECT_EQ(kernel["kind"], "gemm");
  EXPECT_EQ(data["averages"]["rows"].size(), key_averages(trace).rows.size());
  EXPECT_FALSE(data.contains("diff"));
}

TEST(HtmlReport, HostileNamesAddNeitherMarkupNorScript) {
  const std::string hostile =
      "</script><script>alert(1)</script><!-- \" ' {{script}} \x01\x02\x7f \xff\xc3\x28 "
      "\xe2\x80\xa8";
  const std::string plain = page_of(one_kernel("k"), "t");
  const std::string page =
      page_of(one_kernel(hostile), hostile, {.gzip = "", .file_name = hostile});
  for (const std::string_view part : {"<script", "</script", "<!--", "<meta", "<style"})
    EXPECT_EQ(count(page, part), count(plain, part)) << part;
  EXPECT_EQ(count(page, "alert(1)"), 2u);  // escaped, in <title> and <h1>
  EXPECT_EQ(count(page, "&lt;script&gt;alert(1)"), 2u);
  EXPECT_EQ(page.find('\x01'), std::string::npos);
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data["kernels"][0]["name"].get<std::string>().find("</script><script>alert(1)"), 0u);
  EXPECT_EQ(data["trace_file"].get<std::string>().find("</script>"), 0u);
}

TEST(HtmlReport, AllowsItsOwnScriptAndStyleOnly) {
  const std::string page = page_of(one_kernel("k"));
  EXPECT_EQ(count(page, "default-src 'none'; script-src 'sha256-"), 1u);
  EXPECT_EQ(count(page, "unsafe-inline"), 0u);
  EXPECT_EQ(count(page, "<link"), 0u);
  EXPECT_EQ(count(page, " src="), 0u);
  EXPECT_EQ(count(page, "@import"), 0u);
  EXPECT_EQ(count(page, "innerHTML"), 0u);
  EXPECT_EQ(count(page, "{{"), count(page, "${{"));  // every placeholder was filled
}

TEST(HtmlReport, AnEmptyTraceHasAPageWithoutEvents) {
  const nlohmann::json data = data_of(page_of(Trace{}, "nothing"));
  EXPECT_EQ(data["timeline"]["events"], 0);
  EXPECT_EQ(data["kernels"].size(), 0u);
  EXPECT_EQ(data["explanation"]["verdict"], "cpu-only");
}

TEST(HtmlReport, AListAboveTheLimitIsCutAndSaysSo) {
  TraceBuilder b;
  const int n = static_cast<int>(kMaxPageRows) + 7;
  for (int i = 0; i < n; ++i) {
    // The first seven are the shortest.
    const int64_t id =
        b.op("op_" + std::to_string(i), i * 100, i * 100 + 50 + (i < 7 ? 0 : 30)).external_id;
    b.kernel("kernel_" + std::to_string(i), i * 100 + 10, i * 100 + 20 + (i < 7 ? 0 : 5), id);
  }
  b.annotation("last", n * 100, n * 100 + 90);
  const nlohmann::json data = data_of(page_of(b.trace));
  EXPECT_EQ(data["kernels"].size(), kMaxPageRows);
  EXPECT_EQ(data["left_out"]["kernels"], 7);
  EXPECT_EQ(data["kernels_total_us"], (n * 10 + kMaxPageRows * 5) * 1e-3);  // of all
  EXPECT_EQ(data["explanation"]["dispatch_chains"].size(), kMaxPageRows);
  EXPECT_EQ(data["left_out"]["explanation.dispatch_chains"], 7);
  const nlohmann::json& rows = data["averages"]["rows"];
  EXPECT_EQ(rows.size(), kMaxPageRows);
  EXPECT_GT(data["left_out"]["averages.rows"], kMaxPageRows);  // ops, kernels, call, annotation
  const auto has = [&](std::string_view name) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r["name"] == name; });
  };
  EXPECT_TRUE(has("epiLaunchKernel"));
  EXPECT_FALSE(has("op_0"));
  EXPECT_TRUE(has("op_7"));
}

TEST(HtmlReport, AWholeListSaysNothing) {
  EXPECT_TRUE(data_of(page_of(one_kernel("k")))["left_out"].empty());
}

TEST(HtmlReport, ADifferenceNamesTheEarlierTrace) {
  const Trace before = one_kernel("slow");
  const Trace after = one_kernel("fast");
  const Links links = link(after);
  const Explanation explanation = explain(after, links);
  const TraceDiff diff = diff_traces(before, link(before), after, links);
  const nlohmann::json data = data_of(html_report({.trace = after,
                                                   .links = links,
                                                   .explanation = explanation,
                                                   .diff = &diff,
                                                   .before_path = "runs/eager.json.gz"}));
  EXPECT_EQ(data["before_path"], "eager.json.gz");
  EXPECT_EQ(data["diff"]["wall_us"][0], 5.0);
  EXPECT_EQ(data["diff"]["kernels_removed"][0]["name"], "slow");
}

TEST(HtmlReport, RanksHaveAPageWithAllNumbers) {
  RanksExplanation e;
  for (const int64_t rank : {0, 1}) {
    e.ranks.emplace_back().rank = rank;
    e.ranks.back().path = "</script><b>";
    e.collectives.ranks.emplace_back().rank = rank;
  }
  e.kernels.emplace_back().name = "ampere_sgemm_128x64_tn";
  EXPECT_EQ(count(ranks_html_report(e, "run"), ">2 ranks<"), 1u) << "nothing is found";
  e.findings.emplace_back().title = "first";
  e.findings.back().cost_us = 1;
  e.findings.emplace_back().title = "costs <most>";
  e.findings.back().cost_us = 2;
  const std::string page = ranks_html_report(e, "run <1>");
  EXPECT_EQ(count(page, "costs &lt;most&gt;"), 1u);
  EXPECT_EQ(count(page, "<title>run &lt;1&gt;</title>"), 1u);
  EXPECT_EQ(count(page, "</script><b>"), 0u);
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data["ranks"], nlohmann::json::parse(ranks_json(e)));
  EXPECT_EQ(data["kernels"][0]["kind"], "gemm");
  EXPECT_EQ(data["has_trace"], false);
  EXPECT_TRUE(data["left_out"].empty());
  EXPECT_EQ(gunzip(from_base64(block(page, "data-columns"))), "");
  EXPECT_EQ(block(page, "data-trace"), "");
}

TEST(HtmlReport, RanksHaveTheLinksThatAreGiven) {
  RanksExplanation e;
  e.ranks.resize(2);
  e.collectives.ranks.resize(2);
  const std::vector<std::string> pages = {"run_ranks/rank_0000.html", "run_ranks/rank_0001.html"};
  EXPECT_EQ(data_of(ranks_html_report(e, "run", pages))["rank_pages"], nlohmann::json(pages));
  EXPECT_TRUE(data_of(ranks_html_report(e, "run"))["rank_pages"].empty());
}

TEST(HtmlReport, OfManyKernelsOfRanksThePageHasTheFirst) {
  RanksExplanation e;
  for (int i = 0; i < 10'003; ++i) e.kernels.emplace_back().name = "k" + std::to_string(i);
  const nlohmann::json data = data_of(ranks_html_report(e, "run"));
  EXPECT_EQ(data["ranks"]["kernels"].size(), 10'000u);
  EXPECT_EQ(data["kernels"].size(), 10'000u);
  EXPECT_EQ(data["left_out"]["ranks.kernels"], 3);
  EXPECT_EQ(nlohmann::json::parse(ranks_json(e))["kernels"].size(), 10'003u);
}

TEST(HtmlReport, TheMemoryCurveKeepsThePeak) {
  TraceBuilder b;
  b.op("aten::empty", 0, 10'000'000);
  int64_t highest = 0;
  int64_t total = 0;
  for (int i = 0; i < 5000; ++i) {
    const int64_t bytes = i == 3333 ? 1'000'000 : i == 3334 ? -1'000'000 : i % 2 == 0 ? 64 : -64;
    b.memory(i * 1000, bytes);
    total += bytes;
    highest = std::max(highest, total);
  }
  const nlohmann::json curve = data_of(page_of(b.trace))["memory_curves"][0];
  EXPECT_LT(curve.size(), 2600u);
  int64_t peak = 0;
  for (const auto& point : curve) peak = std::max(peak, point[1].get<int64_t>());
  EXPECT_EQ(peak, highest);
}

// The host launches at 1 us; the kernel works from 3 to 9; the host waits until 10.
TEST(HtmlReport, HasThePiecesOfTheCriticalPath) {
  GpuTrace b;
  b.op("aten::mm", 0, 2000);
  b.call("cudaLaunchKernel", 1000, 2000, 1);
  b.gpu_kernel("sgemm", 3000, 9000, 1);
  b.call("cudaDeviceSynchronize", 2000, 10'000);
  const nlohmann::json data = data_of(page_of(b.trace));
  const nlohmann::json& path = data["explanation"]["critical_path"];
  EXPECT_EQ(path["span_us"], 10.0);
  EXPECT_EQ(path["groups"][0]["name"], "sgemm");
  EXPECT_EQ(path["groups"][0]["path_us"], 6.0);
  EXPECT_EQ(path["groups"][0]["span_if_half_us"], 7.0);
  const nlohmann::json pieces = data["critical_path_pieces"];
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[2], nlohmann::json({3.0, 9.0, 0}));
  const std::string text = explain_text(explain(b.trace, link(b.trace)), {});
  EXPECT_HAS(text, "Critical path: 10.0 us");
  EXPECT_HAS(text, "7.00 us (30.0 % less)");
}

// The annotation goes on for 5 us after the last moment of the path.
TEST(HtmlReport, TextSaysWhatTheTraceSpansOutsideOfItsPath) {
  GpuTrace b;
  b.op("aten::mm", 0, 2000);
  b.call("cudaLaunchKernel", 1000, 2000, 1);
  b.gpu_kernel("sgemm", 3000, 9000, 1);
  b.call("cudaDeviceSynchronize", 2000, 10'000);
  const auto text_of = [&] { return explain_text(explain(b.trace, link(b.trace)), {}); };
  EXPECT_LACKS(text_of(), "The trace spans");
  b.annotation("ProfilerStep#1", 0, 15'000);
  EXPECT_HAS(text_of(), "The trace spans 15.0 us: 5.00 us of it lie before the first moment");
}

// Two kernels are launched before the first begins; an annotation spans both.
TEST(HtmlReport, HasQueuesAndDeviceRanges) {
  GpuTrace b;
  b.call("cudaLaunchKernel", 0, 1000, 1);
  b.call("cudaLaunchKernel", 1000, 2000, 2);
  b.gpu_kernel("a", 3000, 5000, 1);
  b.gpu_kernel("b", 6000, 7000, 2);
  b.event(Category::gpu_user_annotation, "forward", 3000, 7000, 7);
  const nlohmann::json data = data_of(page_of(b.trace));
  EXPECT_EQ(data["queue_curves"][0], nlohmann::json({{1.0, 1}, {2.0, 2}, {3.0, 1}, {6.0, 0}}));
  const nlohmann::json& e = data["explanation"];
  EXPECT_EQ(e["queues"][0]["max_length"], 2);
  EXPECT_EQ(e["queues"][0]["over_time"], data["queue_curves"][0]);
  EXPECT_EQ(e["device_ranges"][0]["name"], "forward");
  EXPECT_EQ(e["device_ranges"][0]["busy_us"], 3.0);
  EXPECT_EQ(e["device_ranges"][0]["idle_us"], 1.0);
  const std::string text = explain_text(explain(b.trace, link(b.trace)), {});
  EXPECT_HAS(text, "up to 2 pieces of work were launched and had not started");
  EXPECT_HAS(text, "Annotations on the device");
}

TEST(EmbedTrace, PlainTextIsCompressedAndNamedSo) {
  const EmbeddedTrace embedded = embed_trace("{\"traceEvents\": []}", "runs/a.json");
  EXPECT_EQ(gunzip(embedded.gzip), "{\"traceEvents\": []}");
  EXPECT_EQ(embedded.file_name, "a.json.gz");
  EXPECT_EQ(embedded.note, "");
}

TEST(EmbedTrace, GzipIsKeptByteForByte) {
  const std::string gzip = gzip_bytes("[]").value();
  const EmbeddedTrace embedded = embed_trace(gzip, "a.json.gz");
  EXPECT_EQ(embedded.gzip, gzip);
  EXPECT_EQ(embedded.file_name, "a.json.gz");
  const std::string page = page_of(Trace{}, "t", embedded);
  EXPECT_EQ(from_base64(block(page, "data-trace")), gzip);
  EXPECT_EQ(data_of(page)["has_trace"], true);
}

TEST(EmbedTrace, AboveTheLimitItIsLeftOutAndThePageSaysSo) {
  const std::string gzip = gzip_bytes("[]").value();
  for (const std::string& file : {gzip, std::string("[1, 2, 3]")}) {
    const EmbeddedTrace embedded = embed_trace(file, "a.json", 8);
    EXPECT_EQ(embedded.gzip, "");
    EXPECT_EQ(embedded.note, "The trace is not in this page: compressed it is over 8 B.");
    const nlohmann::json data = data_of(page_of(Trace{}, "t", embedded));
    EXPECT_EQ(data["trace_note"], embedded.note);
    EXPECT_EQ(data["has_trace"], false);
  }
}

TEST(HtmlReport, ARealTraceTakesFewBytesPerEvent) {
  const std::string name = "tracelens/mi300_flux_compiled.json.gz";
  if (!testing::has_real_trace(name)) GTEST_SKIP() << "no " << name;
  const Trace trace = read_trace(testing::real_trace_path(name)).value();
  const std::string page = page_of(trace);
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data["explanation"]["kernels"], 5549);
  EXPECT_LT(block(page, "data-columns").size(), 16u * data["timeline"]["events"].get<size_t>());
}

}  // namespace epilogue::trace::html_report_test
