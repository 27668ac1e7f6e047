// Horizontal bars that are split into parts, one below the other, as inline SVG.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/plot.hpp"

namespace shunt::cli {

struct StackedBars {
  struct Part {
    std::string name;
    std::size_t style = 0;  ///< below kNumStyles
  };
  struct Bar {
    std::string name;
    std::vector<double> lengths;  ///< of each part, not negative; parts of length 0 are not drawn
    std::optional<double> mark;   ///< a value to compare the whole bar with
  };

  Caption caption;
  std::string x_name;
  std::vector<Part> parts;
  std::string mark_name;
  std::vector<Bar> bars;  ///< at least one
  Formatter format;
};
std::string to_html(const StackedBars& chart);

}  // namespace shunt::cli
