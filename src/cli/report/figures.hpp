// How a page prints figures: numbers, comparisons of two numbers, and tiles with the most important ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/plot.hpp"

namespace shunt::cli {

/// "0.713"
std::string ratio_text(double value);
/// "1.234", "123.4", "1234"
std::string ms_text(double value);
/// "12.5 %"
std::string percent_text(double share);
/// "16.0 % lower"
std::string comparison(double before, double after);

/// A figure for which lower is better.
struct Tile {
  std::string name, meaning;
  std::optional<double> before;
  double after = 0;
  Formatter format;
};
std::string to_html(const std::vector<Tile>& tiles);

}  // namespace shunt::cli
