// SPDX-License-Identifier: Apache-2.0
#include "tools/epilogue/bench/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace epilogue::tool {
namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 440;
constexpr double kLeft = 80;
constexpr double kRight = 24;
constexpr double kTop = 56;
constexpr double kBottom = 64;

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

// One axis: whole powers of `base` around the data, or where base is kLinear whole multiples of
// `unit`.
struct Axis {
  double base;
  double unit;
  double low;  // in ticks: exponents or multiples
  double high;
  double from;  // pixels
  double to;

  bool is_linear() const { return base == kLinear; }
  bool shows(double value) const { return is_linear() ? std::isfinite(value) : value > 0; }
  double tick_of(double value) const {
    return is_linear() ? value / unit : std::log(value) / std::log(base);
  }
  double value_of(double tick) const { return is_linear() ? tick * unit : std::pow(base, tick); }
  double at(double value) const {
    return from + (to - from) * (tick_of(value) - low) / (high - low);
  }
};

// 1, 2 or 5 times a power of ten, so that a span takes about 4 to 10 of it.
double nice_unit(double span) {
  if (!(span > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(span)));
  const double lead = span / power;
  return power * (lead < 2 ? 0.2 : lead < 5 ? 0.5 : 1);
}

Axis fit(const std::vector<Series>& series, bool x, double base, double from, double to) {
  Axis axis{base, 1, 0, 0, from, to};
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Series& s : series) {
    for (const auto& [px, py] : s.points) {
      const double v = x ? px : py;
      if (!axis.shows(v)) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  if (!(low <= high)) low = high = base == kLinear ? 0 : 1;
  if (axis.is_linear()) axis.unit = nice_unit(high - low);
  axis.low = std::floor(axis.tick_of(low) + 1e-9);
  axis.high = std::max(std::ceil(axis.tick_of(high) - 1e-9), axis.low + 1);
  return axis;
}

std::string label_of(const Axis& axis, double tick) {
  const double v = axis.value_of(tick);
  if (!axis.is_linear() && v >= 1 && v < 1e6) return fmt::format("{:.0f}", v);
  return fmt::format("{:g}", v);
}

std::string axes(const Plot& plot, const Axis& x, const Axis& y) {
  std::string s;
  for (double e = x.low; e <= x.high + 1e-9; e += 1) {
    const double px = x.at(x.value_of(e));
    s += fmt::format(
        "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' class='grid'/>"
        "<text x='{0:.1f}' y='{3}' text-anchor='middle'>{4}</text>\n",
        px, y.to, y.from, y.from + 18, label_of(x, e));
  }
  for (double e = y.low; e <= y.high + 1e-9; e += 1) {
    const double py = y.at(y.value_of(e));
    s += fmt::format(
        "<line x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}' class='grid'/>"
        "<text x='{3}' y='{4:.1f}' text-anchor='end'>{5}</text>\n",
        py, x.from, x.to, x.from - 8, py + 4, label_of(y, e));
  }
  s += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (x.from + x.to) / 2,
                   kHeight - 18, escape(plot.x_label));
  s +=
      fmt::format("<text transform='translate(20 {}) rotate(-90)' text-anchor='middle'>{}</text>\n",
                  (y.from + y.to) / 2, escape(plot.y_label));
  return s;
}

std::string curve(const Series& series, const Axis& x, const Axis& y) {
  std::string points;
  std::string dots;
  for (const auto& [px, py] : series.points) {
    if (!x.shows(px) || !y.shows(py)) continue;
    points += fmt::format("{:.1f},{:.1f} ", x.at(px), y.at(py));
    dots += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'><title>{}: {:g}, {:g}</title></circle>",
        x.at(px), y.at(py), escape(series.color), escape(series.name), px, py);
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>{}\n", points,
                     escape(series.color), dots);
}

}  // namespace

std::string render_svg(const Plot& plot) {
  const Axis x = fit(plot.series, true, plot.x_log_base, kLeft, kWidth - kRight);
  const Axis y = fit(plot.series, false, plot.y_log_base, kHeight - kBottom, kTop);
  std::string s = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' "
      "font-family='system-ui, sans-serif' font-size='13'>\n"
      "<style>.grid{{stroke:#ddd}} text{{fill:#333}}</style>\n"
      "<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='{2}' y='24' font-size='16' font-weight='600'>{3}</text>\n",
      kWidth, kHeight, kLeft, escape(plot.title));
  s += axes(plot, x, y);
  if (plot.mark_x && x.shows(*plot.mark_x)) {
    const double px = std::clamp(x.at(*plot.mark_x), x.from, x.to);
    s += fmt::format(
        "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' stroke='#888' stroke-dasharray='5 4'/>"
        "<text x='{3:.1f}' y='{4}'>{5}</text>\n",
        px, y.to, y.from, px + 6, y.to + 14, escape(plot.mark_label));
  }
  double legend = kLeft;
  for (const Series& series : plot.series) {
    s += curve(series, x, y);
    s += fmt::format(
        "<rect x='{0:.0f}' y='34' width='12' height='12' fill='{1}'/>"
        "<text x='{2:.0f}' y='45'>{3}</text>\n",
        legend, escape(series.color), legend + 17, escape(series.name));
    legend += 40 + 7.5 * static_cast<double>(series.name.size());
  }
  return s + "</svg>\n";
}

}  // namespace epilogue::tool
