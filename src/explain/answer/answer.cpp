// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/answer.h"

#include <utility>

#include "epilogue/trace/kernel_name.h"
#include "explain/render/document.h"
#include "explain/render/documents.h"

namespace epilogue::trace {

Answer::Answer(Document document, std::shared_ptr<const void> data)
    : data_(std::move(data)), document_(std::make_shared<const Document>(std::move(document))) {}

std::string Answer::text(bool use_bold) const { return document_text(*document_, use_bold); }
std::string Answer::markdown() const { return document_markdown(*document_); }
std::string Answer::json() const { return document_json(*document_); }
std::string Answer::csv() const { return document_csv(*document_); }

Answer names_answer(std::span<const std::string> names) {
  auto decoded = std::make_shared<std::vector<KernelName>>();
  decoded->reserve(names.size());
  for (const std::string& name : names) decoded->push_back(decode_kernel_name(name));
  return {kernel_names_document(*decoded), decoded};
}

}  // namespace epilogue::trace
