// SPDX-License-Identifier: Apache-2.0
// An explanation as a document and as JSON: what its sections give.
#include <limits>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "explain/render/document_sink.h"
#include "explain/render/documents.h"
#include "explain/render/json_numbers.h"
#include "explain/sections/section.h"

namespace epilogue::trace {

Document explain_document(const Explanation& explanation, int top) {
  DocumentSink sink(top);
  for (const Section* section : shown_sections())
    if (section->show != nullptr) section->show(explanation, sink);
  Document document = sink.take();
  document.json = [&explanation] { return explain_json(explanation); };
  return document;
}

ExplanationJson explanation_json(const Explanation& e, size_t max_rows) {
  JsonLists lists(max_rows);
  Json json = {{"schema_version", kJsonSchemaVersion}};
  for (const Section* section : json_sections()) section->add_json(e, json, lists);
  return {std::move(json), std::move(lists).left_out()};
}

std::string explain_json(const Explanation& e) {
  return dump_json(explanation_json(e, std::numeric_limits<size_t>::max()).json);
}

std::string explain_text(const Explanation& explanation, const ReportOptions& options) {
  return document_text(explain_document(explanation, options.top), options.use_bold);
}
std::string explain_markdown(const Explanation& explanation, const ReportOptions& options) {
  return document_markdown(explain_document(explanation, options.top));
}

}  // namespace epilogue::trace
