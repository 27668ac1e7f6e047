#include "cli/report/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/report/plot.hpp"

namespace shunt::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostRows = 4;  // of a lane
constexpr double kRounding = 1e-6;    // ms

double first_begin(const TimelineChart::Group& group) {
  double first = std::numeric_limits<double>::infinity();
  for (const Lane& lane : group.lanes)
    for (const Span& span : lane.spans) first = std::min(first, span.begin_ms);
  return first;
}

/// Spans that overlap are put into different rows, as long as there are rows; by ascending begin in each row.
std::vector<std::vector<const Span*>> rows_of(const Lane& lane) {
  std::vector<const Span*> spans;
  for (const Span& span : lane.spans) spans.push_back(&span);
  std::ranges::stable_sort(spans, {}, [](const Span* span) { return span->begin_ms; });
  std::vector<std::vector<const Span*>> rows;
  for (const Span* span : spans) {
    const auto is_free = [&](const auto& row) { return row.back()->end_ms <= span->begin_ms + kRounding; };
    auto row = std::ranges::find_if(rows, is_free);
    if (row == rows.end() && rows.size() < kMostRows) row = rows.emplace(row);
    (row == rows.end() ? rows.back() : *row).push_back(span);
  }
  return rows;
}

/// Columns of whole numbers, which take a third of the bytes of an object per span.
json row_data(const std::vector<const Span*>& row, double origin_ms, std::map<std::string, std::size_t>& ops) {
  json begin = json::array(), end = json::array(), op = json::array(), layer = json::array(), kind = json::array();
  const auto nanoseconds = [&](double ms) { return std::llround((ms - origin_ms) * 1e6); };
  for (const Span* span : row) {
    begin.push_back(nanoseconds(span->begin_ms));
    end.push_back(nanoseconds(span->end_ms));
    op.push_back(ops.emplace(span->op, ops.size()).first->second);
    layer.push_back(span->layer);
    kind.push_back(span->kind);
  }
  return {{"begin", begin}, {"end", end}, {"op", op}, {"layer", layer}, {"kind", kind}};
}

/// JSON without the character that could end the element around it.
std::string in_script(const json& data) {
  std::string text;
  for (const char c : data.dump()) c == '<' ? text += "\\u003c" : text += c;
  return text;
}

json data_of(const TimelineChart& chart) {
  std::map<std::string, std::size_t> ops;
  json groups = json::array();
  for (const TimelineChart::Group& group : chart.groups) {
    const double origin_ms = first_begin(group);
    json lanes = json::array();
    for (const Lane& lane : group.lanes) {
      json rows = json::array();
      for (const auto& row : rows_of(lane)) rows.push_back(row_data(row, origin_ms, ops));
      if (!rows.empty()) lanes.push_back({{"name", lane.name}, {"rows", rows}});
    }
    groups.push_back({{"name", group.name}, {"lanes", lanes}});
  }
  json names = json::array(), kinds = json::array();
  for (std::size_t i = 0; i < ops.size(); ++i) names.push_back("");
  for (const auto& [name, index] : ops) names[index] = name;
  for (const TimelineChart::Kind& kind : chart.kinds) kinds.push_back({{"name", kind.name}, {"style", kind.style}});
  return {{"ops", names}, {"kinds", kinds}, {"groups", groups}};
}

bool occurs(const TimelineChart& chart, std::size_t kind) {
  for (const TimelineChart::Group& group : chart.groups)
    for (const Lane& lane : group.lanes)
      if (std::ranges::any_of(lane.spans, [&](const Span& span) { return span.kind == kind; })) return true;
  return false;
}

}  // namespace

std::string to_html(const TimelineChart& chart) {
  std::string legend, buttons;
  for (std::size_t i = 0; i < chart.kinds.size(); ++i)
    if (occurs(chart, i)) legend += legend_entry(fmt::format("s{}", chart.kinds[i].style), "bar", chart.kinds[i].name);
  for (const auto& [action, name] : {std::pair{"in", "Zoom in"},
                                     {"out", "Zoom out"},
                                     {"left", "Earlier"},
                                     {"right", "Later"},
                                     {"all", "Whole step"}})
    buttons += fmt::format("<button type=\"button\" data-action=\"{}\">{}</button>", action, name);
  const Caption& caption = chart.caption;
  return fmt::format(
      "<figure class=\"timeline\" id=\"{}\"><figcaption>{}<span>{}</span></figcaption>\n<ul class=\"legend\">{}</ul>\n"
      "<p class=\"buttons\">{}</p>\n<noscript><p>The timeline needs JavaScript.</p></noscript>\n"
      "<canvas tabindex=\"0\" role=\"img\" aria-label=\"{}. {}\"></canvas>\n<p class=\"tip\" hidden></p>\n"
      "<script type=\"application/json\">{}</script></figure>\n",
      caption.id, prose(caption.title), prose(caption.description), legend, buttons, escape(caption.title),
      escape(caption.description), in_script(data_of(chart)));
}

}  // namespace shunt::cli
