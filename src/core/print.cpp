// SPDX-License-Identifier: Apache-2.0
// The values of a tensor as text, as PyTorch's torch/_tensor_str.py writes them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "core/dtype_names.h"
#include "core/element.h"
#include "core/host_elements.h"
#include "epilogue/tensor.h"

namespace epilogue {
namespace {

// PyTorch's default print options.
constexpr int kPrecision = 4;
constexpr int64_t kThreshold = 1000;  // larger tensors are summarised
constexpr int64_t kEdgeItems = 3;
constexpr size_t kLineWidth = 80;
constexpr std::string_view kPrefix = "tensor(";

std::string number_text(const char* format, int precision, double value) {
  if (std::isnan(value)) return "nan";  // never "-nan"
  char text[400];                       // the longest: 1e308 with all its digits
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): streams would keep a state
  const int n = std::snprintf(text, sizeof text, format, precision, value);
  return {text, static_cast<size_t>(n)};
}

// How floating elements are written, all alike.
struct FloatForm {
  bool is_whole = true;
  bool is_scientific = false;

  std::string text(double value) const {
    if (is_scientific) return number_text("%.*e", kPrecision, value);
    if (!is_whole) return number_text("%.*f", kPrecision, value);
    return number_text("%.*f", 0, value) + (std::isfinite(value) ? "." : "");
  }
};

class Printer {
 public:
  explicit Printer(const Tensor& t)
      : tensor_(t), elements_(t), is_summary_(t.numel() > kThreshold) {
    choose_form();
    visit(0, 0, [&](int64_t offset) {
      const double value = get(offset);
      const bool counts = !is_floating(t.dtype()) || (std::isfinite(value) && value != 0);
      if (counts) width_ = std::max(width_, bare_text(offset).size());
    });
  }

  // The elements from dimension `dim` on, at `offset`; `indent` columns stand before them.
  std::string text(int dim, int64_t offset, size_t indent) const {
    if (dim == tensor_.dim()) return padded(offset);
    if (dim == tensor_.dim() - 1) return row(offset, indent);
    const auto newlines = static_cast<size_t>(tensor_.dim() - 1 - dim);
    const std::string separator = "," + std::string(newlines, '\n') + std::string(indent + 1, ' ');
    std::string joined;
    for_each_shown(dim, [&](int64_t i) {
      if (!joined.empty()) joined += separator;
      joined += i < 0 ? "..." : text(dim + 1, offset + i * tensor_.strides()[dim], indent + 1);
    });
    return "[" + joined + "]";
  }

 private:
  double get(int64_t offset) const {
    return load_element(tensor_.dtype(), elements_.data(), offset);
  }

  // Calls body(i) for the indices of `dim` that are shown, body(-1) for those that are not.
  template <class Body>
  void for_each_shown(int dim, Body&& body) const {
    const int64_t n = tensor_.sizes()[dim];
    const bool cut = is_summary_ && n > 2 * kEdgeItems;
    for (int64_t i = 0; i < n; ++i) {
      if (cut && i == kEdgeItems) {
        body(int64_t{-1});
        i = n - kEdgeItems;
      }
      body(i);
    }
  }
  // Calls body(offset) for every element that is shown.
  template <class Body>
  void visit(int dim, int64_t offset, Body&& body) const {
    if (dim == tensor_.dim()) return body(offset);
    for_each_shown(dim, [&](int64_t i) {
      if (i >= 0) visit(dim + 1, offset + i * tensor_.strides()[dim], body);
    });
  }

  void choose_form() {
    double least = INFINITY;
    double largest = 0;
    visit(0, 0, [&](int64_t offset) {
      const double value = get(offset);
      if (!std::isfinite(value) || value == 0) return;
      least = std::min(least, std::abs(value));
      largest = std::max(largest, std::abs(value));
      form_.is_whole = form_.is_whole && value == std::ceil(value);
    });
    form_.is_scientific = largest > 0 && (largest / least > 1000 || largest > 1e8 || least < 1e-4);
  }

  std::string bare_text(int64_t offset) const {
    if (is_floating(tensor_.dtype())) return form_.text(get(offset));
    if (tensor_.dtype() == DType::boolean) return get(offset) != 0 ? "True" : "False";
    if (tensor_.dtype() == DType::u8) return std::to_string(static_cast<int>(get(offset)));
    return std::to_string(static_cast<const int64_t*>(elements_.data())[offset]);
  }
  std::string padded(int64_t offset) const {
    const std::string bare = bare_text(offset);
    return std::string(width_ - std::min(width_, bare.size()), ' ') + bare;
  }

  // One row, in lines of at most kLineWidth columns.
  std::string row(int64_t offset, size_t indent) const {
    const size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
    const size_t per_line = std::max<size_t>(1, room / (width_ + 2));
    const int dim = tensor_.dim() - 1;
    std::string joined;
    size_t count = 0;
    for_each_shown(dim, [&](int64_t i) {
      if (count != 0) joined += count % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      joined += i < 0 ? " ..." : padded(offset + i * tensor_.strides()[dim]);
      ++count;
    });
    return "[" + joined + "]";
  }

  const Tensor& tensor_;
  HostElements elements_;
  bool is_summary_;
  FloatForm form_;
  size_t width_ = 1;
};

std::string size_text(const Dims& sizes) {
  std::string text = "size=(";
  for (int d = 0; d < sizes.rank(); ++d) text += (d != 0 ? ", " : "") + std::to_string(sizes[d]);
  return text + (sizes.rank() == 1 ? ",)" : ")");
}

// The text behind the values: all that a reader could not tell from them.
std::vector<std::string> suffixes_of(const Tensor& t) {
  std::vector<std::string> suffixes;
  if (t.device().type != DeviceType::cpu)
    suffixes.push_back("device='" + to_string(t.device()) + "'");
  const bool is_empty = t.numel() == 0;
  if (is_empty && t.dim() != 1) suffixes.push_back(size_text(t.sizes()));
  const DType dtype = t.dtype();
  const bool is_told =
      dtype == DType::f32 || (!is_empty && (dtype == DType::i64 || dtype == DType::boolean));
  if (!is_told) suffixes.push_back("dtype=torch." + std::string(torch_dtype_name(dtype)));
  const detail::AutogradMeta* const autograd = t.impl()->autograd.get();
  if (t.requires_grad() && autograd != nullptr && !autograd->is_leaf()) {
    suffixes.push_back("grad_fn=<" + autograd->grad_fn_name() + ">");
  } else if (t.requires_grad()) {
    suffixes.emplace_back("requires_grad=True");
  }
  return suffixes;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined";
  tensor.require_readable("<<");
  std::string text(kPrefix);
  text += tensor.numel() == 0 ? "[]" : Printer(tensor).text(0, 0, kPrefix.size());
  const size_t last_break = text.rfind('\n');
  size_t column = last_break == std::string::npos ? text.size() + 2 : text.size() - last_break + 1;
  for (const std::string& suffix : suffixes_of(tensor)) {
    if (column + suffix.size() + 2 > kLineWidth) {
      text += ",\n" + std::string(kPrefix.size(), ' ') + suffix;
      column = kPrefix.size() + suffix.size();
    } else {
      text += ", " + suffix;
      column += suffix.size() + 2;
    }
  }
  return out << text << ")";
}

}  // namespace epilogue
