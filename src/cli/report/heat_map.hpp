// A matrix as a heat map: a small PNG inside an SVG, which draws blocks and labels over it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cli/report/page.hpp"

namespace shunt::cli {

struct HeatMap {
  Caption caption;
  std::size_t size = 0;  ///< number of rows and of columns
  /// From 0 (darkest) to 1 (brightest); other values are clamped.
  std::function<double(std::size_t row, std::size_t column)> level;
  /// First index of each block on the diagonal, then `size`; ascending from 0. Blocks may be empty.
  std::vector<std::size_t> block_begin;
  /// Blocks per group; groups are outlined in another colour; 0: no groups.
  std::size_t blocks_per_group = 0;
};
std::string to_html(const HeatMap& map);

/// The legend of the colours.
std::string heat_scale(const std::string& darkest, const std::string& brightest);

}  // namespace shunt::cli
