// SPDX-License-Identifier: Apache-2.0
// A small line plot as SVG: logarithmic axes, a legend, one optional vertical mark.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace epilogue::tool {

struct Series {
  std::string name;
  std::string color;                              // any CSS colour
  std::vector<std::pair<double, double>> points;  // positive values
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  std::optional<double> mark_x;
  std::string mark_label;
  double x_log_base = 2;  // ticks at powers of this
};

// A complete SVG document that needs nothing from outside. Points that are not positive are left
// out. Axes span the data.
std::string render_svg(const Plot& plot);

}  // namespace epilogue::tool
