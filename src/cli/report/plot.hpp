// What the charts of a page share: axes, the figure around a plot, and its legend.
#pragma once

#include <cstddef>
#include <string>

#include "cli/report/page.hpp"

namespace shunt::cli {

/// Formats a number for the tips at points and bars.
using Formatter = std::string (*)(double);

/// A range of round numbers around all values.
class Axis {
 public:
  Axis(double low, double high);

  /// Position from the beginning of the axis: from the left, or from the bottom.
  [[nodiscard]] double percent(double value) const { return 100 * (value / step_ - first_) / (last_ - first_); }
  /// Horizontal lines with numbers left of them.
  [[nodiscard]] std::string rows() const;
  /// Numbers below the plot, and vertical lines if `has_lines`.
  [[nodiscard]] std::string columns(bool has_lines) const;

 private:
  [[nodiscard]] int num_steps() const { return static_cast<int>(last_ - first_); }
  [[nodiscard]] std::string number(int step) const;

  double step_, first_, last_;
};

/// A label below the plot; `dy` is its distance.
std::string x_label(double percent, const std::string& dy, const std::string& text);

/// The sample beside the name of a series: `shape` is a symbol of the page.
std::string legend_entry(const std::string& kind, const std::string& shape, const std::string& name);

struct PlotSize {
  std::size_t least_width = 0;  ///< in pixels; narrower windows scroll; 0: any
  std::size_t height = 0;       ///< in pixels, with labels; 0: as other charts
};

/// The figure around a plot.
std::string figure(const Caption& caption, const std::string& legend_entries, const PlotSize& size,
                   const std::string& drawn);

}  // namespace shunt::cli
