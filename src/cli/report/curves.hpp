// Curves over a continuous x axis as inline SVG: lines of any number of points, and marks at some of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/report/plot.hpp"

namespace shunt::cli {

using Point = std::pair<double, double>;  ///< x, y; finite

struct Curve {
  std::string name;
  std::vector<Point> line;   ///< by ascending x; may be empty
  std::vector<Point> marks;  ///< may be empty
  std::size_t style = 0;     ///< below kNumStyles
};

struct CurveChart {
  Caption caption;
  std::string x_name;
  std::vector<Curve>
      curves;  ///< with at least one point each, drawn in this order: style 0 is wide enough to be seen below another
  Formatter format;
};
std::string to_html(const CurveChart& chart);

/// At most `most` points, among them the first and the last.
std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most);

/// Each value is replaced by the mean of the values at most `reach` positions away.
std::vector<double> smoothed(const std::vector<double>& values, std::size_t reach);

}  // namespace shunt::cli
