#include "cli/report/charts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shunt::cli {
namespace {

constexpr std::size_t kMostLabels = 12;  // two digits each, on a narrow page
constexpr std::size_t kMostUnscrolled = 16, kPixelsPerGroup = 14, kGroupsPerLabel = 4;  // groups of bars

std::size_t divide_up(std::size_t number, std::size_t by) { return (number + by - 1) / by; }

double greatest(const std::vector<Series>& series) {
  double value = 0;
  for (const Series& each : series) value = std::max(value, *std::max_element(each.values.begin(), each.values.end()));
  return value;
}

double least(const std::vector<Series>& series) {
  double value = greatest(series);
  for (const Series& each : series) value = std::min(value, *std::min_element(each.values.begin(), each.values.end()));
  return value;
}

std::string draw_bars(const BarChart& chart, const Axis& axis) {
  constexpr double kGap = 0.24;  // between groups, as a share of a group
  const double group = 100.0 / static_cast<double>(chart.num_groups);
  const double bar = group * (1 - kGap) / static_cast<double>(chart.series.size());
  std::string svg;
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const Series& series = chart.series[s];
    svg += fmt::format("<g class=\"s{}\">\n", series.style);
    for (std::size_t i = 0; i < chart.num_groups; ++i) {
      const double left = group * (static_cast<double>(i) + kGap / 2) + bar * static_cast<double>(s);
      const double height = axis.percent(series.values[i]);
      svg += fmt::format(
          "<rect x=\"{:.3f}%\" y=\"{:.2f}%\" width=\"{:.3f}%\" height=\"{:.2f}%\"><title>{}, {} {}: "
          "{}</title></rect>\n",
          left, 100 - height, bar, height, escape(series.name), escape(chart.x_name), i,
          chart.format(series.values[i]));
    }
    svg += "</g>\n";
  }
  return svg;
}

/// Numbers of groups, and below them names of sections with borders between them, as many as fit a narrow page.
std::string draw_bar_labels(const BarChart& chart, bool is_scrolled) {
  const double group = 100.0 / static_cast<double>(chart.num_groups);
  const std::size_t stride = is_scrolled ? kGroupsPerLabel : chart.num_groups > kMostLabels ? 2 : 1;
  std::string svg;
  for (std::size_t i = 0; i < chart.num_groups; i += stride)
    svg += x_label(group * (static_cast<double>(i) + 0.5), "1.5em", fmt::to_string(i));
  if (chart.section_size == 0) return svg + x_label(50, "3.1em", chart.x_name);
  constexpr std::size_t kMostNames = 5;
  const std::size_t sections = divide_up(chart.num_groups, chart.section_size);
  const std::size_t name_stride =
      is_scrolled ? divide_up(kGroupsPerLabel, chart.section_size) : divide_up(sections, kMostNames);
  for (std::size_t i = 0; i < sections; ++i) {
    const double left = group * static_cast<double>(i * chart.section_size);
    if (i > 0)
      svg += fmt::format("<line class=\"section\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"0\" y2=\"100%\"/>\n", left);
    if (i % name_stride == 0)
      svg += x_label(left + group * static_cast<double>(chart.section_size) / 2, "3.1em",
                     fmt::format("{} {}", chart.section_name, i));
  }
  return svg;
}

}  // namespace

std::string to_html(const LineChart& chart) {
  constexpr std::size_t kMostMarked = 32, kPixelsEach = 8;
  const std::size_t count = chart.x.size();
  const Axis axis(least(chart.series), greatest(chart.series));
  const auto x = [&](std::size_t i) { return (100.0 * static_cast<double>(i) + 50) / static_cast<double>(count); };
  std::string svg = axis.rows(), legend;
  for (const Series& each : chart.series)
    legend += legend_entry(fmt::format("s{}", each.style), fmt::format("m{}", each.style), each.name);
  for (auto each = chart.series.rbegin(); each != chart.series.rend(); ++each) {
    std::string points, marks;
    for (std::size_t i = 0; i < count; ++i) {
      const double y = 100 - axis.percent(each->values[i]);
      points += fmt::format("{:.2f},{:.2f} ", x(i), y);
      if (count <= kMostMarked)
        marks += fmt::format("<use href=\"#m{}\" x=\"{:.2f}%\" y=\"{:.2f}%\"><title>{}, {} {}: {}</title></use>\n",
                             each->style, x(i), y, escape(each->name), escape(chart.x_name), chart.x[i],
                             chart.format(each->values[i]));
    }
    svg += fmt::format(
        "<g class=\"s{}\"><svg width=\"100%\" height=\"100%\" viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" "
        "overflow=\"visible\"><polyline points=\"{}\" vector-effect=\"non-scaling-stroke\"/></svg>\n{}</g>\n",
        each->style, points, marks);
  }
  const std::size_t stride = divide_up(count, kMostLabels);
  for (std::size_t i = 0; i < count; i += stride) svg += x_label(x(i), "1.5em", fmt::to_string(chart.x[i]));
  svg += x_label(50, "3.1em", chart.x_name);
  return figure(chart.caption, legend, {.least_width = count > kMostMarked ? count * kPixelsEach : 0}, svg);
}

std::string to_html(const BarChart& chart) {
  const Axis axis(0, std::max(greatest(chart.series), chart.limit.value_or(0)));
  const bool is_scrolled = chart.num_groups > kMostUnscrolled;
  std::string svg = axis.rows() + draw_bars(chart, axis) + draw_bar_labels(chart, is_scrolled), legend;
  for (const Series& series : chart.series)
    legend += legend_entry(fmt::format("s{}", series.style), "bar", series.name);
  if (chart.limit) {
    const double y = 100 - axis.percent(*chart.limit);
    svg += fmt::format("<line class=\"limit\" x1=\"0\" x2=\"100%\" y1=\"{0:.2f}%\" y2=\"{0:.2f}%\"/>\n", y);
    legend += legend_entry("over", "dashes", "limit " + chart.format(*chart.limit));
  }
  return figure(chart.caption, legend, {.least_width = is_scrolled ? chart.num_groups * kPixelsPerGroup : 0}, svg);
}

}  // namespace shunt::cli
