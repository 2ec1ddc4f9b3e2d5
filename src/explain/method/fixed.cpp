// SPDX-License-Identifier: Apache-2.0
// Tables that are normalised again for each request.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kTableBytes = 1 << 20;
constexpr int64_t kQueryRows = 8;  // times as many rows as a product gives the other operand
constexpr int64_t kTimes = 3;

class FixedOperands : AskedSearch {
 public:
  FixedOperands(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (all_.has_backward || all_.trace.inputs.size() == 0) return;
    std::map<Dims, Table> tables;
    for (size_t i = 0; i < asked_.size(); ++i)
      if (is_statistic(i)) tables.try_emplace(tensors(i)[0].dims);
    if (tables.empty()) return;
    for (size_t i = 0; i < asked_.size(); ++i) {
      const std::vector<TensorShape> of = tensors(i);
      if (of.empty()) continue;
      const auto result = output_shape(asked_.name(i), asked_.inputs(i));
      for (auto& [dims, table] : tables) look_at(i, of, result, dims, table);
    }
    for (auto& [dims, table] : tables)
      if (!table.is_made && table.is_operand && table.divisions >= kTimes)
        report_table(dims, table);
  }

 private:
  struct Table {
    CostlyForm form;
    int64_t divisions = 0;
    bool is_made = false;     // by an op of the run: then it is no table
    bool is_operand = false;  // of products with few rows, or rows are taken of it
  };

  // A number for each row or column of a large matrix.
  bool is_statistic(size_t i) const {
    constexpr std::array<std::string_view, 5> kStatistics = {"linalg_vector_norm", "norm", "std",
                                                             "mean", "var"};
    if (!is_one(kStatistics, asked_.base(i))) return false;
    const std::vector<TensorShape> of = tensors(i);
    return !of.empty() && of[0].dims.size() == 2 && of[0].bytes().value_or(0) >= kTableBytes;
  }

  // Op i reads `of` and makes `result`.
  void look_at(size_t i, const std::vector<TensorShape>& of,
               const std::optional<TensorShape>& result, const Dims& dims, Table& table) const {
    const bool reads_it = of[0].dims == dims;
    if (reads_it && is_statistic(i)) {
      add(i, table);
      return;
    }
    const OpClass kind = asked_.kind(i);
    if (kind == OpClass::pointwise && reads_it) {
      add(i, table);
      const std::string_view base = asked_.base(i);
      if (base == "div" || base == "mul" || base == "sub") ++table.divisions;
      return;
    }
    if (kind == OpClass::view) return;
    if (is_multiplication(asked_.name(i)) && of.size() >= 2) {
      const size_t left = asked_.base(i) == "addmm" && of.size() > 2 ? 1 : 0;
      const Dims turned(dims.rbegin(), dims.rend());
      const int64_t columns =
          std::max<int64_t>(1, of[left].dims.empty() ? 1 : of[left].dims.back());
      if ((of[left + 1].dims == dims || of[left + 1].dims == turned) &&
          kQueryRows * (of[left].numel() / columns) <= dims[0])
        table.is_operand = true;
    } else if (reads_it && (asked_.base(i) == "embedding" || asked_.base(i) == "index_select")) {
      table.is_operand = true;
    }
    if (result && result->dims == dims) table.is_made = true;
  }

  void add(size_t i, Table& table) const {
    take(table.form, i);
    if (table.form.count++ == 0) table.form.first = i;
  }

  void report_table(const Dims& dims, const Table& table) {
    report(
        WasteKind::fixed_operand, table.form,
        fmt::format("a table of {} is normalised {} times before few rows meet it",
                    sizes_text(dims), table.divisions),
        {times_of(table.form),
         "no op of the run makes the table; no trace tells whether its values change"},
        "if the table (weights, a catalogue, an index) is the same each time, normalise it once, "
        "when it is loaded, and keep the result; or divide the scores by the norms, which are "
        "kept: far fewer numbers",
        std::nullopt, WasteProof::likely);
  }
};

}  // namespace

void find_fixed_operands(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  FixedOperands(asked, places, found).run();
}

}  // namespace epilogue::trace
