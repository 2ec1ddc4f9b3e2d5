// SPDX-License-Identifier: Apache-2.0
// A small line plot as SVG: logarithmic or linear axes, a legend, one optional vertical mark.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace epilogue::tool {

// A "base" of an axis that is not logarithmic.
inline constexpr double kLinear = 0;

struct Series {
  std::string name;
  std::string color;  // any CSS colour
  std::vector<std::pair<double, double>> points;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  std::optional<double> mark_x;
  std::string mark_label;
  double x_log_base = 2;  // ticks at powers of this; kLinear: at even distances
  double y_log_base = 10;
};

// A complete SVG document that needs nothing from outside. Axes span the data; points that have no
// place on them (not finite, or on a logarithmic axis not positive) are left out.
std::string render_svg(const Plot& plot);

}  // namespace epilogue::tool
