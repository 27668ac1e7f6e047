#include "cli/report/stacked_bars.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace shunt::cli {
namespace {

using Bar = StackedBars::Bar;

// In pixels. A row is a name above a bar.
constexpr std::size_t kRowHeight = 50, kNameHeight = 18, kBarHeight = 22;
constexpr std::size_t kAroundRows = 60;  // the padding of plots

double whole(const Bar& bar) { return std::accumulate(bar.lengths.begin(), bar.lengths.end(), 0.0); }

/// The inner svg cuts off names that are wider than the plot.
std::string draw_name(const Bar& bar, std::size_t top) {
  return fmt::format("<svg y=\"{}\" width=\"100%\" height=\"{}\"><text x=\"1\" y=\"13\">{}</text></svg>\n", top,
                     kNameHeight, escape(bar.name));
}

std::string draw_parts(const StackedBars& chart, const Bar& bar, const Axis& axis, std::size_t top) {
  std::string svg;
  double begin = 0;
  for (std::size_t i = 0; i < chart.parts.size(); ++i) {
    if (bar.lengths[i] <= 0) continue;
    svg += fmt::format(
        "<rect class=\"s{}\" x=\"{:.3f}%\" y=\"{}\" width=\"{:.3f}%\" height=\"{}\"><title>{}, {}: "
        "{}</title></rect>\n",
        chart.parts[i].style, axis.percent(begin), top + kNameHeight,
        axis.percent(begin + bar.lengths[i]) - axis.percent(begin), kBarHeight, escape(bar.name),
        escape(chart.parts[i].name), chart.format(bar.lengths[i]));
    begin += bar.lengths[i];
  }
  if (bar.mark)
    svg += fmt::format(
        "<g class=\"mark\"><use href=\"#tick\" x=\"{:.3f}%\" y=\"{}\"><title>{}, {}: {}</title></use></g>\n",
        axis.percent(*bar.mark), top + kNameHeight + kBarHeight / 2, escape(bar.name), escape(chart.mark_name),
        chart.format(*bar.mark));
  return svg;
}

std::string legend_of(const StackedBars& chart) {
  std::string legend;
  for (std::size_t i = 0; i < chart.parts.size(); ++i)
    if (std::ranges::any_of(chart.bars, [&](const Bar& bar) { return bar.lengths[i] > 0; }))
      legend += legend_entry(fmt::format("s{}", chart.parts[i].style), "bar", chart.parts[i].name);
  if (std::ranges::any_of(chart.bars, [](const Bar& bar) { return bar.mark.has_value(); }))
    legend += legend_entry("mark", "tick", chart.mark_name);
  return legend;
}

}  // namespace

std::string to_html(const StackedBars& chart) {
  double longest = 0;
  for (const Bar& bar : chart.bars) longest = std::max({longest, whole(bar), bar.mark.value_or(0)});
  const Axis axis(0, longest);
  std::string svg = axis.columns(true);
  for (std::size_t i = 0; i < chart.bars.size(); ++i)
    svg += draw_name(chart.bars[i], i * kRowHeight) + draw_parts(chart, chart.bars[i], axis, i * kRowHeight);
  return figure(chart.caption, legend_of(chart), {.height = chart.bars.size() * kRowHeight + kAroundRows},
                svg + x_label(50, "3.1em", chart.x_name));
}

}  // namespace shunt::cli
