#include "cli/report/place_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/output.hpp"
#include "cli/report/charts.hpp"
#include "cli/report/figures.hpp"
#include "cli/report/heat_map.hpp"
#include "cli/report/page.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::cli {
namespace {

using Figures = PlaceReport::Figures;
using Method = PlaceReport::Method;
using Layer = PlaceReport::Layer;

// A heat map of 512 experts or more takes 350 KB, and a layer has two.
constexpr std::size_t kMostPictured = 3;
constexpr std::size_t kMostBeside = 24;  // layers in charts that are shown side by side
constexpr double kRounding = 1e-6;       // of figures in reports

/// The page compares one method with one other: shunt with contiguous if the report has them.
class PlacePage {
 public:
  explicit PlacePage(const PlaceReport& report) : report_(report), main_(&report.methods.front()) {
    for (const Method& method : report.methods) {
      if (method.name == "contiguous") base_ = &method;
      if (method.name == "shunt") main_ = &method;
    }
    for (const Method& method : report.methods)
      if (main_ == base_ && &method != base_) main_ = &method;
    if (main_ == base_) base_ = nullptr;
  }

  [[nodiscard]] std::string title() const {
    return fmt::format("{} on {}", plural(report_.experts, "expert"), ranks_text());
  }
  [[nodiscard]] std::string body(const std::string& source) const {
    return "<main>\n" + header() + tiles() + methods() + by_layer() + pictures() + settings() + "</main>\n" +
           footer({source});
  }

 private:
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string tiles() const;
  [[nodiscard]] std::string methods() const;
  [[nodiscard]] std::string by_layer() const;
  [[nodiscard]] std::string pictures() const;
  [[nodiscard]] std::string loads(std::int64_t layer) const;
  [[nodiscard]] std::string heat_maps(const PlaceReport::Heat& heat) const;
  [[nodiscard]] std::string settings() const;

  [[nodiscard]] std::string ranks_text() const {
    const std::string ranks = plural(static_cast<std::int64_t>(report_.ranks()), "rank");
    return report_.nodes == 1 ? ranks
                              : fmt::format("{} nodes × {}", report_.nodes, plural(report_.ranks_per_node, "rank"));
  }
  /// The figures that are shown by default: those of held-out tokens, if there are any.
  template <class Row>
  [[nodiscard]] const Figures& shown(const Row& row) const {
    return row.held_out ? *row.held_out : row.training;
  }
  [[nodiscard]] bool has_held_out() const { return main_->held_out.has_value(); }
  [[nodiscard]] std::string tokens_text() const {
    return has_held_out() ? "on tokens that no map was made from" : "on the tokens that maps were made from";
  }
  [[nodiscard]] std::vector<const Method*> main_first() const;
  [[nodiscard]] std::size_t style_of(const Method& method) const;
  /// The load limit of a layer of the main method.
  [[nodiscard]] std::optional<double> limit_of(const Layer& placed) const {
    return placed.load_limit ? placed.load_limit : report_.load_limit;
  }
  /// "2 of 8": layers in which a method's load exceeds that limit.
  [[nodiscard]] std::string over_limit(const Method& method) const;
  [[nodiscard]] const Layer& layer_of(const Method& method, std::int64_t number) const {
    return *std::find_if(method.layers.begin(), method.layers.end(),
                         [&](const Layer& layer) { return layer.number == number; });
  }

  const PlaceReport& report_;
  const Method* main_;
  const Method* base_ = nullptr;
};

std::vector<const Method*> PlacePage::main_first() const {
  std::vector<const Method*> methods = {main_};
  if (base_) methods.push_back(base_);
  for (const Method& method : report_.methods)
    if (&method != main_ && &method != base_) methods.push_back(&method);
  return methods;
}

std::size_t PlacePage::style_of(const Method& method) const {
  const auto methods = main_first();
  const auto place = static_cast<std::size_t>(std::find(methods.begin(), methods.end(), &method) - methods.begin());
  const std::size_t others = base_ ? 2 : 1;  // the first style of the other methods
  return place < others ? place : 2 + (place - others) % (kNumStyles - 2);
}

std::string PlacePage::over_limit(const Method& method) const {
  std::size_t over = 0, limited = 0;
  for (std::size_t i = 0; i < method.layers.size(); ++i)
    if (const auto limit = limit_of(main_->layers[i])) {
      ++limited;
      if (method.layers[i].training.load > *limit * (1 + kRounding)) ++over;
    }
  return limited == 0 ? "" : fmt::format("{} of {}", over, limited);
}

std::string PlacePage::header() const {
  std::string lead = fmt::format("Experts of {}, {} of {} per token, placed by {}",
                                 plural(static_cast<std::int64_t>(main_->layers.size()), "layer"), report_.topk,
                                 report_.experts, main_->name);
  if (base_) {
    const Figures &before = shown(*base_), &after = shown(*main_);
    lead += fmt::format(". Against experts in order (contiguous), C_T is {} and the estimated time {}, {}",
                        comparison(before.c_t, after.c_t), comparison(before.estimated_ms, after.estimated_ms),
                        tokens_text());
  }
  return fmt::format("<header><p class=\"kind\">shunt place</p>\n<h1>{}</h1>\n<p class=\"lead\">{}.</p></header>\n",
                     escape(title()), prose(lead));
}

std::string PlacePage::tiles() const {
  struct Meaning {
    const char *name, *text;
    double Figures::*figure;
    Formatter format;
  };
  std::vector<Tile> tiles;
  for (const Meaning& meaning : {Meaning{"C_T", "ranks that a token is sent to", &Figures::c_t, ratio_text},
                                 {"Estimated time, ms", "of the busiest link", &Figures::estimated_ms, ms_text},
                                 {"Load", "busiest rank over the mean", &Figures::load, ratio_text}}) {
    tiles.push_back({meaning.name, meaning.text, std::nullopt, shown(*main_).*meaning.figure, meaning.format});
    if (base_) tiles.back().before = shown(*base_).*meaning.figure;
  }
  return to_html(tiles);
}

std::string PlacePage::methods() const {
  Table table;
  table.caption = "Means over layers; lower is better all_sms";
  table.columns = {{"method", ""}};
  const auto add_columns = [&](const std::string& group) {
    for (const char* name : {"C_T", "C_T of nodes", "load", "time, ms"}) table.columns.push_back({name, group});
  };
  add_columns(has_held_out() ? "training tokens" : "");
  const bool is_limited = !over_limit(*main_).empty();
  if (is_limited) table.columns.push_back({"layers over load limit", table.columns.back().group});
  if (has_held_out()) add_columns("held-out tokens");
  if (base_) table.columns.push_back({"C_T against contiguous", ""});
  for (const Method* method : main_first()) {
    std::vector<std::string> row = {method->name};
    const auto add = [&](const Figures& figures) {
      row.insert(row.end(), {ratio_text(figures.c_t), ratio_text(figures.c_t_node), ratio_text(figures.load),
                             ms_text(figures.estimated_ms)});
    };
    add(method->training);
    if (is_limited) row.push_back(over_limit(*method));
    if (method->held_out) add(*method->held_out);
    if (base_) row.push_back(method == base_ ? "–" : comparison(shown(*base_).c_t, shown(*method).c_t));
    table.rows.push_back(std::move(row));
  }
  table.marked_row = 0;
  return fmt::format("<section>\n<h2>Methods</h2>\n<p class=\"quiet\">{}</p>\n{}</section>\n",
                     prose("C_T is the number of ranks that a token's experts are on, so the number of copies of the "
                           "token that are sent; C_T of nodes counts nodes. Load is the busiest rank's rows over the "
                           "mean of all ranks. Time is the busiest link's, as the cluster's description predicts it."),
                     to_html(table));
}

std::string PlacePage::by_layer() const {
  std::vector<std::int64_t> numbers;
  for (const Layer& layer : main_->layers) numbers.push_back(layer.number);
  const auto series = [&](double Figures::*figure) {
    std::vector<Series> all;
    for (const Method* method : main_first()) {
      all.push_back({.name = method->name, .values = {}, .style = style_of(*method)});
      for (const Layer& layer : method->layers) all.back().values.push_back(shown(layer).*figure);
    }
    return all;
  };
  const LineChart c_t = {.caption = {"c-t-by-layer", "C_T by layer", "Ranks per token, " + tokens_text()},
                         .x_name = "layer",
                         .x = numbers,
                         .series = series(&Figures::c_t),
                         .format = ratio_text};
  const LineChart time = {
      .caption = {"time-by-layer", "Estimated time by layer, ms", "The busiest link's, " + tokens_text()},
      .x_name = "layer",
      .x = numbers,
      .series = series(&Figures::estimated_ms),
      .format = ms_text};
  Table table{.caption = "C_T by layer, " + tokens_text(), .columns = {{"layer", ""}}, .rows = {}};
  for (const Series& method : c_t.series) table.columns.push_back({method.name, ""});
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    table.rows.push_back({fmt::to_string(numbers[i])});
    for (const Series& method : c_t.series) table.rows.back().push_back(ratio_text(method.values[i]));
  }
  return fmt::format(
      "<section>\n<h2>Layer by layer</h2>\n<div class=\"{}\">\n{}{}</div>\n"
      "<details><summary>The figures</summary>\n{}</details>\n</section>\n",
      numbers.size() > kMostBeside ? "stack" : "pair", to_html(c_t), to_html(time), to_html(table));
}

std::string PlacePage::loads(std::int64_t layer) const {
  const Layer& placed = layer_of(*main_, layer);
  BarChart chart = {.caption = {fmt::format("load-{}", layer), "Load of each rank",
                                "Rows over the mean of all ranks, on the tokens that maps were made from"},
                    .x_name = "rank",
                    .num_groups = report_.ranks(),
                    .series = {},
                    .format = ratio_text,
                    .limit = limit_of(placed),
                    .section_size = report_.nodes > 1 ? static_cast<std::size_t>(report_.ranks_per_node) : 0,
                    .section_name = "node"};
  if (base_) chart.series.push_back({base_->name, layer_of(*base_, layer).rank_load, style_of(*base_)});
  chart.series.push_back({main_->name, placed.rank_load, style_of(*main_)});
  return fmt::format("<section>\n<h2>Load, layer {}</h2>\n{}</section>\n", layer, to_html(chart));
}

/// The 99th percentile over pairs of different experts, so that a few large values don't darken all others.
double brightest(const PlaceReport::Heat& heat, std::size_t experts) {
  std::vector<double> pairs;
  for (std::size_t a = 0; a < experts; ++a)
    for (std::size_t b = 0; b < experts; ++b)
      if (a != b) pairs.push_back(heat.co_activation[a * experts + b]);
  if (pairs.empty()) return 1;
  const auto place = pairs.begin() + static_cast<std::ptrdiff_t>((pairs.size() - 1) * 99 / 100);
  std::nth_element(pairs.begin(), place, pairs.end());
  return *place > 0 ? *place : 1;
}

/// Share of the co-activation of different experts that is between experts on the same rank.
double share_inside(const PlaceReport::Heat& heat, std::size_t experts, const std::vector<std::size_t>& order,
                    const std::vector<std::size_t>& rank_begin) {
  std::vector<bool> meet(experts * experts);
  for (std::size_t rank = 0; rank + 1 < rank_begin.size(); ++rank)
    for (std::size_t i = rank_begin[rank]; i < rank_begin[rank + 1]; ++i)
      for (std::size_t j = rank_begin[rank]; j < rank_begin[rank + 1]; ++j) meet[order[i] * experts + order[j]] = true;
  double inside = 0, all = 0;
  for (std::size_t a = 0; a < experts; ++a)
    for (std::size_t b = 0; b < experts; ++b) {
      if (a == b) continue;
      const double value = heat.co_activation[a * experts + b];
      all += value;
      if (meet[a * experts + b]) inside += value;
    }
  return all > 0 ? inside / all : 0;
}

std::string PlacePage::heat_maps(const PlaceReport::Heat& heat) const {
  const auto experts = static_cast<std::size_t>(report_.experts);
  const double top = brightest(heat, experts);
  const auto ranks = static_cast<std::int32_t>(report_.ranks());
  const ExpertMap in_order = ExpertMap::contiguous(static_cast<std::int32_t>(report_.experts), ranks);
  std::vector<std::size_t> begin_before = {0};
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    begin_before.push_back(begin_before.back() + static_cast<std::size_t>(in_order.num_local(RankId(rank))));
  const auto picture = [&](const char* id, const std::string& title, const std::vector<std::size_t>& order,
                           const std::vector<std::size_t>& rank_begin) {
    HeatMap map;
    map.caption = {fmt::format("heat-{}-{}", id, heat.layer), title,
                   fmt::format("{:.1f} % of co-activation is between experts of one rank",
                               100 * share_inside(heat, experts, order, rank_begin))};
    map.size = order.size();
    map.level = [&](std::size_t row, std::size_t column) {
      // The diagonal carries no information.
      return order[row] == order[column] ? 0 : heat.co_activation[order[row] * experts + order[column]] / top;
    };
    map.block_begin = rank_begin;
    map.blocks_per_group = report_.nodes > 1 ? static_cast<std::size_t>(report_.ranks_per_node) : 0;
    return to_html(map);
  };
  return fmt::format(
      "<section>\n<h2>Co-activation, layer {}</h2>\n<p class=\"quiet\">A bright cell is a pair of experts "
      "that tokens often choose together. Rows and columns are experts; numbers and white squares mark ranks{}. A "
      "bright "
      "cell outside the squares is a pair that costs a further copy of the token.</p>\n<div "
      "class=\"pair\">\n{}{}</div>\n"
      "{}</section>\n",
      heat.layer, report_.nodes > 1 ? ", blue squares nodes" : "",
      picture("before", "Before: experts in order", heat.before, begin_before),
      picture("after", fmt::format("After: experts by rank, {}", main_->name), heat.after, heat.rank_begin),
      heat_scale("co-activation 0", fmt::format("≥ {:.3g}", top)));
}

std::string PlacePage::pictures() const {
  if (report_.heat.empty()) return loads(main_->layers.back().number);
  std::string html;
  for (std::size_t i = 0; i < std::min(kMostPictured, report_.heat.size()); ++i)
    html += loads(report_.heat[i].layer) + heat_maps(report_.heat[i]);
  if (report_.heat.size() > kMostPictured)
    html +=
        fmt::format("<p class=\"quiet\">The report has pictures of {} layers; those of the first {} are shown.</p>\n",
                    report_.heat.size(), kMostPictured);
  return html;
}

std::string PlacePage::settings() const {
  const std::vector<std::pair<const char*, std::string>> entries = {
      {"trace", report_.trace},
      {"objective", report_.objective},
      {"experts", fmt::format("{}, top-{}", report_.experts, report_.topk)},
      {"layers", fmt::to_string(main_->layers.size())},
      {"ranks", ranks_text()},
      {"cluster", report_.cluster},
      {"rows", fmt::format("hidden {}, {}", report_.hidden, report_.dtype)},
      {"replicas", fmt::format("{:.4g} % more expert copies", report_.replicas)},
      {"load limit", report_.load_limit ? ratio_text(*report_.load_limit) : "default, layer by layer"},
      {"held out",
       report_.holdout && *report_.holdout > 0 ? percent_text(*report_.holdout) + " of the tokens" : "nothing"}};
  std::string html =
      "<section>\n<h2>Settings</h2>\n<p class=\"quiet\">What <code>shunt place</code> was given:</p>\n<dl>\n";
  for (const auto& [name, value] : entries)
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, escape(value));
  return html + "</dl>\n</section>\n";
}

}  // namespace

std::string make_place_page(const PlaceReport& report, const std::string& source) {
  const PlacePage page(report);
  return make_page("shunt place: " + page.title(), page.body(source));
}

}  // namespace shunt::cli
