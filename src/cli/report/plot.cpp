#include "cli/report/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shunt::cli {
namespace {

constexpr int kSteps = 5;
constexpr double kSlack = 1e-9;

}  // namespace

Axis::Axis(double low, double high) {
  if (high <= low) high = low + std::max(1e-6, std::abs(low) / 10);
  const double raw = (high - low) / kSteps;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  step_ = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= raw) step_ = factor * power;
  first_ = std::floor(low / step_ + kSlack);
  last_ = std::ceil(high / step_ - kSlack);
}

std::string Axis::number(int step) const {
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step_) + kSlack)));
  return fmt::format("{:.{}f}", (first_ + step) * step_, decimals);
}

std::string Axis::rows() const {
  std::string svg;
  for (int i = 0; i <= num_steps(); ++i)
    svg += fmt::format(
        "<line class=\"{0}\" x1=\"0\" x2=\"100%\" y1=\"{1:.2f}%\" y2=\"{1:.2f}%\"/>"
        "<text x=\"-8\" y=\"{1:.2f}%\" dy=\".35em\" text-anchor=\"end\">{2}</text>\n",
        i == 0 ? "base" : "grid", 100 - percent((first_ + i) * step_), number(i));
  return svg;
}

std::string Axis::columns(bool has_lines) const {
  std::string svg;
  for (int i = 0; i <= num_steps(); ++i) {
    const double x = percent((first_ + i) * step_);
    if (has_lines)
      svg += fmt::format("<line class=\"{0}\" y1=\"0\" y2=\"100%\" x1=\"{1:.2f}%\" x2=\"{1:.2f}%\"/>",
                         i == 0 ? "base" : "grid", x);
    svg += x_label(x, "1.5em", number(i));
  }
  return svg;
}

std::string x_label(double percent, const std::string& dy, const std::string& text) {
  return fmt::format("<text x=\"{:.3f}%\" y=\"100%\" dy=\"{}\" text-anchor=\"middle\">{}</text>\n", percent, dy,
                     escape(text));
}

std::string legend_entry(const std::string& kind, const std::string& shape, const std::string& name) {
  return fmt::format(
      "<li class=\"{}\"><svg class=\"key\" aria-hidden=\"true\"><use href=\"#{}\" x=\"8\" y=\"8\"/></svg>"
      "<span>{}</span></li>",
      kind, shape, escape(name));
}

std::string figure(const Caption& caption, const std::string& legend_entries, const PlotSize& size,
                   const std::string& drawn) {
  std::string style;
  if (size.least_width > 0) style += fmt::format("min-width:{}px;", size.least_width);
  if (size.height > 0) style += fmt::format("height:{}px;", size.height);
  if (!style.empty()) style = fmt::format(" style=\"{}\"", style);
  const std::string svg = fmt::format(
      "<svg class=\"plot\"{0} id=\"{1}\" role=\"img\" aria-labelledby=\"{1}-title {1}-desc\"><title "
      "id=\"{1}-title\">{2}</title><desc id=\"{1}-desc\">{3}</desc>\n{4}</svg>",
      style, caption.id, escape(caption.title), escape(caption.description), drawn);
  return fmt::format("<figure><figcaption>{}<span>{}</span></figcaption>\n<ul class=\"legend\">{}</ul>\n{}</figure>\n",
                     prose(caption.title), prose(caption.description), legend_entries,
                     size.least_width > 0 ? scrolled(caption.title, svg) : svg);
}

}  // namespace shunt::cli
