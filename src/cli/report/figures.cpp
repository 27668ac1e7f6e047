#include "cli/report/figures.hpp"

#include <fmt/format.h>

#include <cmath>

namespace shunt::cli {

std::string ratio_text(double value) { return fmt::format("{:.3f}", value); }

std::string ms_text(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:#.4g}", value);
}

std::string percent_text(double share) { return fmt::format("{:.4g} %", 100 * share); }

std::string comparison(double before, double after) {
  if (before <= 0) return "not comparable";
  const double change = 100 * (after / before - 1);
  return std::abs(change) < 0.05 ? "the same"
                                 : fmt::format("{:.1f} % {}", std::abs(change), change < 0 ? "lower" : "higher");
}

std::string to_html(const std::vector<Tile>& tiles) {
  std::string html = "<div class=\"tiles\">\n";
  for (const Tile& tile : tiles) {
    std::string was, change;
    if (tile.before) {
      const std::string text = comparison(*tile.before, tile.after);
      const char* kind = text.ends_with("lower") ? "good" : text.ends_with("higher") ? "bad" : "same";
      was = fmt::format("<span class=\"was\">{} →</span> ", tile.format(*tile.before));
      change = fmt::format("<p><span class=\"change {}\">{}</span></p>", kind, text);
    }
    html += fmt::format(
        "<div class=\"tile\"><p><strong>{}</strong> <span class=\"quiet\">{}</span></p>\n"
        "<p class=\"figure\">{}{}</p>{}</div>\n",
        prose(tile.name), prose(tile.meaning), was, tile.format(tile.after), change);
  }
  return html + "</div>\n";
}

}  // namespace shunt::cli
