// Line and bar charts as inline SVG. Positions are percentages of the plot, so that charts fill the width of the page
// and text keeps its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/plot.hpp"

namespace shunt::cli {

struct Series {
  std::string name;
  std::vector<double> values;  ///< one per position on the x axis; finite
  std::size_t style = 0;       ///< below kNumStyles
};

struct LineChart {
  Caption caption;
  std::string x_name;           ///< name of the x axis, such as "layer"
  std::vector<std::int64_t> x;  ///< number of each position
  std::vector<Series> series;   ///< the first is drawn on top
  Formatter format;
};
std::string to_html(const LineChart& chart);

/// Bars from 0 upwards, in groups: one group per position, with one bar per series.
struct BarChart {
  Caption caption;
  std::string x_name;
  std::size_t num_groups = 0;
  std::vector<Series> series;
  Formatter format;
  std::optional<double> limit;  ///< drawn as a horizontal line
  /// Groups per section, labelled "node 0" and so on; 0: no sections.
  std::size_t section_size = 0;
  std::string section_name;
};
std::string to_html(const BarChart& chart);

}  // namespace shunt::cli
