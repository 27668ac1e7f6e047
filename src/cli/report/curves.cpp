#include "cli/report/curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace shunt::cli {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string draw_line(const Curve& curve, const Axis& x_axis, const Axis& y_axis) {
  std::string points;
  for (const auto& [x, y] : curve.line)
    points += fmt::format("{:.2f},{:.2f} ", x_axis.percent(x), 100 - y_axis.percent(y));
  return fmt::format(
      "<svg width=\"100%\" height=\"100%\" viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" overflow=\"visible\">"
      "<polyline points=\"{}\" vector-effect=\"non-scaling-stroke\"/></svg>\n",
      points);
}

std::string draw_marks(const CurveChart& chart, const Curve& curve, const Axis& x_axis, const Axis& y_axis) {
  std::string svg;
  for (const auto& [x, y] : curve.marks)
    svg += fmt::format("<use href=\"#m{}\" x=\"{:.2f}%\" y=\"{:.2f}%\"><title>{}, {} {:.6g}: {}</title></use>\n",
                       curve.style, x_axis.percent(x), 100 - y_axis.percent(y), escape(curve.name),
                       escape(chart.x_name), x, chart.format(y));
  return svg;
}

}  // namespace

std::string to_html(const CurveChart& chart) {
  Range x_range, y_range;
  for (const Curve& curve : chart.curves)
    for (const std::vector<Point>* points : {&curve.line, &curve.marks})
      for (const auto& [x, y] : *points) {
        x_range.include(x);
        y_range.include(y);
      }
  const Axis x_axis(x_range.low, x_range.high), y_axis(y_range.low, y_range.high);
  std::string svg = y_axis.rows() + x_axis.columns(false), legend;
  for (const Curve& curve : chart.curves)
    legend += legend_entry(fmt::format("s{}", curve.style), fmt::format("m{}", curve.style), curve.name);
  for (const Curve& curve : chart.curves) {
    svg += fmt::format("<g class=\"s{}\">", curve.style);
    if (curve.line.size() > 1) svg += draw_line(curve, x_axis, y_axis);
    svg += draw_marks(chart, curve, x_axis, y_axis) + "</g>\n";
  }
  return figure(chart.caption, legend, {}, svg + x_label(50, "3.1em", chart.x_name));
}

std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most) {
  if (points.size() <= most) return points;
  std::vector<Point> kept;
  kept.reserve(most);
  for (std::size_t i = 0; i < most; ++i) kept.push_back(points[i * (points.size() - 1) / (most - 1)]);
  return kept;
}

std::vector<double> smoothed(const std::vector<double>& values, std::size_t reach) {
  std::vector<double> sums = {0}, means;
  for (const double value : values) sums.push_back(sums.back() + value);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t begin = i - std::min(i, reach), end = std::min(values.size(), i + reach + 1);
    means.push_back((sums[end] - sums[begin]) / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace shunt::cli
