// Line and bar charts as inline SVG. Positions are percentages of the plot, so that a chart is as wide as the page
// lets it be and its text keeps its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/page.hpp"

namespace shunt::cli {

struct Series {
  std::string name;
  std::vector<double> values;  ///< one per position on the x axis; finite
  std::size_t style = 0;       ///< below kNumStyles
};

/// A number as tips at points and bars show it.
using Formatter = std::string (*)(double);

struct LineChart {
  Caption caption;
  std::string x_name;           ///< "layer": what a position on the x axis is
  std::vector<std::int64_t> x;  ///< the positions' numbers
  std::vector<Series> series;   ///< the first is drawn on top
  Formatter format;
};
std::string to_html(const LineChart& chart);

/// Bars from 0 on, in groups: one group per position, in it one bar per series.
struct BarChart {
  Caption caption;
  std::string x_name;
  std::size_t num_groups = 0;
  std::vector<Series> series;
  Formatter format;
  std::optional<double> limit;  ///< a line across
  /// Groups come in sections of this many, "node 0" and on; 0: none.
  std::size_t section_size = 0;
  std::string section_name;
};
std::string to_html(const BarChart& chart);

}  // namespace shunt::cli
