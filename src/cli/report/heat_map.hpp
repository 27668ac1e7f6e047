// A matrix as a picture: a small PNG inside an SVG that draws blocks and labels over it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cli/report/page.hpp"

namespace shunt::cli {

struct HeatMap {
  Caption caption;
  std::size_t size = 0;  ///< rows, and as many columns
  /// From 0, darkest, to 1, brightest; what is beyond is drawn as these.
  std::function<double(std::size_t row, std::size_t column)> level;
  /// Where blocks on the diagonal begin, and the end: ascending from 0 to `size`. Some may be empty.
  std::vector<std::size_t> block_begin;
  /// Blocks of blocks, drawn in another colour; 0: none.
  std::size_t blocks_per_group = 0;
};
std::string to_html(const HeatMap& map);

/// What the colours mean, from the darkest to the brightest.
std::string heat_scale(const std::string& darkest, const std::string& brightest);

}  // namespace shunt::cli
