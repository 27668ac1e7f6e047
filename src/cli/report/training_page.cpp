#include "cli/report/training_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "cli/output.hpp"
#include "cli/report/curves.hpp"
#include "cli/report/figures.hpp"
#include "cli/report/heat_map.hpp"
#include "cli/report/stacked_bars.hpp"
#include "cli/report/timeline.hpp"

namespace shunt::cli {
namespace {

using Run = TrainingReport::Run;

constexpr std::size_t kMostTimelines = 8, kMostHeatMaps = 8;
constexpr std::size_t kMostPoints = 1000, kMostMarks = 48;  // of a curve: more can't be distinguished on a screen

std::string bits_text(double value) { return fmt::format("{:.4f}", value); }
std::string megabytes_text(double value) { return ms_text(value / 1e6); }

/// Differs between runs that are shown together.
struct NamedRun {
  std::string name;
  const Run* run;
};

/// The schedule, the file if there are several, and settings in which runs differ.
std::vector<NamedRun> named_runs(const std::vector<TrainingReport>& reports) {
  const auto differs = [&](auto Run::*setting) {
    const auto& first = reports.front().runs.front().*setting;
    return std::ranges::any_of(reports, [&](const TrainingReport& report) {
      return std::ranges::any_of(report.runs, [&](const Run& run) { return run.*setting != first; });
    });
  };
  const bool shuffles = differs(&Run::shuffle), placements = differs(&Run::placement), prunes = differs(&Run::prune);
  std::vector<NamedRun> named;
  std::set<std::string> taken;
  for (const TrainingReport& report : reports)
    for (const Run& run : report.runs) {
      std::string name = (reports.size() > 1 ? report.name + ": " : "") + run.schedule;
      if (shuffles && !run.shuffle.empty()) name += ", " + run.shuffle;
      if (placements && !run.placement.empty()) name += ", " + run.placement;
      if (prunes && run.prune) name += fmt::format(", prune {}", *run.prune);
      std::string unique = name;
      for (int i = 2; !taken.insert(unique).second; ++i) unique = fmt::format("{} ({})", name, i);
      named.push_back({unique, &run});
    }
  return named;
}

/// A run that was resumed has losses of its last steps only; its last evaluation is not before its last loss.
double first_step(const Run& run) {
  const auto size = static_cast<std::int64_t>(run.losses.size());
  const std::int64_t last = run.held_out.empty() ? size : run.held_out.back().step;
  return static_cast<double>(std::max<std::int64_t>(0, last - size) + 1);
}

std::string section(const std::string& title, const std::string& note, const std::string& html) {
  return fmt::format("<section>\n<h2>{}</h2>\n<p class=\"quiet\">{}</p>\n{}</section>\n", prose(title), prose(note),
                     html);
}

class TrainingPage {
 public:
  explicit TrainingPage(const std::vector<TrainingReport>& reports)
      : reports_(reports), runs_(named_runs(reports)), first_(runs_.front()), fastest_(runs_.front()) {
    for (const NamedRun& each : runs_)
      if (each.run->step_ms < fastest_.run->step_ms) fastest_ = each;
  }

  [[nodiscard]] std::string title() const {
    const std::string model = reports_.front().setting("model"), ranks = reports_.front().setting("ranks");
    if (reports_.size() > 1 || model.empty()) return plural(static_cast<std::int64_t>(runs_.size()), "training run");
    return ranks.empty() ? model : fmt::format("{} on {} rank{}", model, ranks, ranks == "1" ? "" : "s");
  }
  [[nodiscard]] std::string body() const {
    std::vector<std::string> sources;
    for (const TrainingReport& report : reports_) sources.push_back(report.name);
    return "<main>\n" + header() + tiles() + table() + losses() + step_times() + timelines() + traffic() + settings() +
           "</main>\n" + footer(sources);
  }

 private:
  [[nodiscard]] std::string header() const;
  [[nodiscard]] std::string tiles() const;
  [[nodiscard]] std::string table() const;
  [[nodiscard]] std::string losses() const;
  [[nodiscard]] std::string step_times() const;
  [[nodiscard]] std::string timelines() const;
  [[nodiscard]] std::string traffic() const;
  [[nodiscard]] std::string settings() const;

  /// Steps to either side that training losses are averaged over.
  [[nodiscard]] std::size_t reach() const {
    std::size_t longest = 0;
    for (const NamedRun& each : runs_) longest = std::max(longest, each.run->losses.size());
    return longest / 80;
  }

  const std::vector<TrainingReport>& reports_;
  std::vector<NamedRun> runs_;
  NamedRun first_, fastest_;
};

std::string TrainingPage::header() const {
  std::string lead = fmt::format("{}: the step time is {} ms", first_.name, ms_text(first_.run->step_ms));
  if (fastest_.run != first_.run)
    lead = fmt::format("Of {} runs, {} is the fastest: its step time is {} ms, {} than that of {}", runs_.size(),
                       fastest_.name, ms_text(fastest_.run->step_ms),
                       comparison(first_.run->step_ms, fastest_.run->step_ms), first_.name);
  return fmt::format("<header><p class=\"kind\">shunt train</p>\n<h1>{}</h1>\n<p class=\"lead\">{}.</p></header>\n",
                     escape(title()), prose(lead));
}

std::string TrainingPage::tiles() const {
  std::vector<Tile> tiles;
  const auto add = [&](const char* name, const std::string& meaning, Formatter format,
                       const std::function<std::optional<double>(const Run&)>& figure) {
    const std::optional<double> before = figure(*first_.run), after = figure(*fastest_.run);
    if (after) tiles.push_back({name, meaning, fastest_.run == first_.run ? std::nullopt : before, *after, format});
  };
  const std::string runs = fastest_.run == first_.run ? first_.name : first_.name + " and " + fastest_.name;
  add("Step, ms", runs, ms_text, [](const Run& run) { return std::optional(run.step_ms); });
  add("Exposed communication, ms", "per step", ms_text, [](const Run& run) { return run.exposed_comm_ms; });
  add("Bits per byte", "held-out, last evaluation", bits_text, [](const Run& run) {
    return run.held_out.empty() ? std::nullopt : std::optional(run.held_out.back().bits_per_byte);
  });
  return to_html(tiles);
}

std::string TrainingPage::table() const {
  struct Quantity {
    const char* name;
    Formatter format;
    bool has_ratio;
    std::function<std::optional<double>(const Run&)> of;
  };
  const auto optional_of = [](std::optional<double> Run::*figure) {
    return [=](const Run& run) { return run.*figure; };
  };
  const std::vector<Quantity> quantities = {
      {"step, ms", ms_text, true, [](const Run& run) { return std::optional(run.step_ms); }},
      {"exposed communication, ms", ms_text, true, optional_of(&Run::exposed_comm_ms)},
      {"products, ms", ms_text, true, optional_of(&Run::products_ms)},
      {"other compute, ms", ms_text, true, optional_of(&Run::other_compute_ms)},
      {"MB between nodes", megabytes_text, true,
       [](const Run& run) {
         return run.cross_node_bytes ? std::optional(static_cast<double>(*run.cross_node_bytes)) : std::nullopt;
       }},
      {"predicted step, ms", ms_text, false, optional_of(&Run::predicted_step_ms)},
      {"held-out bits per byte", bits_text, false,
       [](const Run& run) {
         return run.held_out.empty() ? std::nullopt : std::optional(run.held_out.back().bits_per_byte);
       }},
      {"seconds to it", ms_text, false,
       [](const Run& run) { return run.held_out.empty() ? std::nullopt : run.held_out.back().seconds; }}};
  Table table;
  table.caption = fmt::format("Ratios are to the first run, {}", first_.name);
  table.columns = {{"run", ""}};
  for (const NamedRun& each : runs_) table.rows.push_back({each.name});
  for (const Quantity& quantity : quantities) {
    if (std::ranges::none_of(runs_, [&](const NamedRun& each) { return quantity.of(*each.run).has_value(); })) continue;
    const bool has_ratio = quantity.has_ratio && runs_.size() > 1;
    table.columns.push_back({quantity.name, ""});
    if (has_ratio) table.columns.push_back({"ratio", ""});
    const std::optional<double> first = quantity.of(*first_.run);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::optional<double> value = quantity.of(*runs_[i].run);
      table.rows[i].push_back(value ? quantity.format(*value) : "–");
      if (has_ratio) table.rows[i].push_back(value && first && *first > 0 ? ratio_text(*value / *first) : "–");
    }
  }
  if (runs_.size() > 1)
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].run == fastest_.run) table.marked_row = i;
  return section("Runs", "Exposed communication is the time in which the compute lane waits for communication.",
                 to_html(table));
}

std::string TrainingPage::losses() const {
  CurveChart by_step = {.caption = {"loss-by-step", "Loss by step, bits per byte",
                                    fmt::format("Lines: training batches, means of {}; points: held-out text",
                                                plural(static_cast<std::int64_t>(2 * reach() + 1), "step"))},
                        .x_name = "step",
                        .curves = {},
                        .format = bits_text};
  CurveChart by_time = {.caption = {"loss-by-time", "Held-out loss by time, bits per byte", "Since the run began"},
                        .x_name = "seconds",
                        .curves = {},
                        .format = bits_text};
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = *runs_[i].run;
    Curve steps = {.name = runs_[i].name, .line = {}, .marks = {}, .style = i % kNumStyles}, times = steps;
    const std::vector<double> means = smoothed(run.losses, reach());
    for (std::size_t step = 0; step < means.size(); ++step)
      steps.line.emplace_back(first_step(run) + static_cast<double>(step), means[step]);
    for (const TrainingReport::HeldOut& evaluation : run.held_out) {
      steps.marks.emplace_back(static_cast<double>(evaluation.step), evaluation.bits_per_byte);
      if (evaluation.seconds) times.marks.emplace_back(*evaluation.seconds, evaluation.bits_per_byte);
    }
    steps.line = thinned(steps.line, kMostPoints);
    steps.marks = thinned(steps.marks, kMostMarks);
    times.marks = times.line = thinned(times.marks, kMostMarks);
    if (!steps.line.empty() || !steps.marks.empty()) by_step.curves.push_back(std::move(steps));
    if (!times.line.empty()) by_time.curves.push_back(std::move(times));
  }
  if (by_step.curves.empty()) return "";
  const bool has_times = std::ranges::any_of(by_time.curves, [](const Curve& curve) { return curve.line.size() > 1; });
  return section(
      "Loss", "Schedules and placement change how long a step takes; pruning changes the loss too.",
      fmt::format("<div class=\"pair\">\n{}{}</div>\n", to_html(by_step), has_times ? to_html(by_time) : ""));
}

std::string TrainingPage::step_times() const {
  StackedBars chart = {
      .caption = {"step-time", "Time of a step by cause, ms", "Rest: what the report assigns to no cause"},
      .x_name = "ms",
      .parts = {{"products", 0}, {"other compute", 4}, {"exposed communication", 3}, {"rest", 1}},
      .mark_name = "predicted step",
      .bars = {},
      .format = ms_text};
  for (const NamedRun& each : runs_) {
    const Run& run = *each.run;
    const double products = run.products_ms.value_or(0), other = run.other_compute_ms.value_or(0),
                 exposed = run.exposed_comm_ms.value_or(0);
    chart.bars.push_back(
        {.name = fmt::format("{}: {} ms", each.name, ms_text(run.step_ms)),
         .lengths = {products, other, exposed, std::max(0.0, run.step_ms - products - other - exposed)},
         .mark = run.predicted_step_ms});
  }
  return section("Step time", "Exposed communication is what a better schedule can hide.", to_html(chart));
}

std::string TrainingPage::timelines() const {
  TimelineChart chart = {
      .caption = {"timeline", "Lanes of a step",
                  "Wheel or drag to zoom, shift and drag to move, double-click for the whole step; with "
                  "the keyboard + − ← → 0"},
      .kinds = {{TrainingReport::kPhases[0], 4},
                {TrainingReport::kPhases[1], 0},
                {TrainingReport::kPhases[2], 2},
                {TrainingReport::kPhases[3], 1}},
      .groups = {}};
  std::size_t shown = 0, hidden = 0;
  for (const NamedRun& each : runs_) {
    if (each.run->measured.empty() && each.run->predicted.empty()) continue;
    if (shown == kMostTimelines) {
      ++hidden;
      continue;
    }
    ++shown;
    if (!each.run->measured.empty()) chart.groups.push_back({each.name + ", measured", each.run->measured});
    if (!each.run->predicted.empty()) chart.groups.push_back({each.name + ", predicted", each.run->predicted});
  }
  if (chart.groups.empty()) return "";
  const std::string note =
      hidden > 0 ? fmt::format(" Of {} runs with timelines, the first {} are shown.", shown + hidden, shown) : "";
  return section(
      "Timeline",
      "One step of each run on one time axis, from its first operation on. Gaps in a compute lane above busy "
      "comm lanes are exposed communication." +
          note,
      to_html(chart));
}

/// The largest number of rows between different ranks; 1 if there is none.
double most_rows(const std::vector<NamedRun>& runs) {
  std::int64_t most = 0;
  for (const NamedRun& each : runs)
    for (std::size_t i = 0; i < each.run->traffic.size(); ++i)
      if (i / each.run->ranks != i % each.run->ranks) most = std::max(most, each.run->traffic[i]);
  return most > 0 ? static_cast<double>(most) : 1;
}

std::string TrainingPage::traffic() const {
  const double most = most_rows(runs_);
  std::string maps;
  std::size_t shown = 0, hidden = 0;
  for (const NamedRun& each : runs_) {
    const Run& run = *each.run;
    if (run.ranks == 0) continue;
    if (shown == kMostHeatMaps) {
      ++hidden;
      continue;
    }
    std::int64_t crossing = 0;
    for (std::size_t i = 0; i < run.traffic.size(); ++i)
      if (i / run.ranks != i % run.ranks) crossing += run.traffic[i];
    HeatMap map;
    map.caption = {fmt::format("traffic-{}", shown++), each.name,
                   fmt::format("{} rows between different ranks", crossing)};
    map.size = run.ranks;
    map.level = [&run, most](std::size_t row, std::size_t column) {
      return static_cast<double>(run.traffic[row * run.ranks + column]) / most;
    };
    for (std::size_t rank = 0; rank <= run.ranks; ++rank) map.block_begin.push_back(rank);
    maps += to_html(map);
  }
  if (maps.empty()) return "";
  const std::string note =
      hidden > 0 ? fmt::format(" Of {} runs with traffic, the first {} are shown.", shown + hidden, shown) : "";
  return section(
      "Traffic",
      "Rows of tensors that the rank of a row sends to the rank of a column; on the diagonal, white squares, "
      "rows that stay on their rank. All maps have the same scale." +
          note,
      fmt::format("<div class=\"pair\">\n{}</div>\n{}", maps,
                  heat_scale("0 rows", fmt::format("≥ {:.0f} rows", most))));
}

std::string TrainingPage::settings() const {
  Table table{.caption = "What the runs were given", .columns = {{"setting", ""}}, .rows = {}};
  std::vector<std::string> keys;
  for (const TrainingReport& report : reports_) {
    table.columns.push_back({report.name, ""});
    for (const auto& [key, value] : report.config)
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  }
  if (keys.empty()) return "";
  for (const std::string& key : keys) {
    table.rows.push_back({key});
    for (const TrainingReport& report : reports_) {
      const std::string value = report.setting(key);
      table.rows.back().push_back(value.empty() ? "–" : value);
    }
  }
  return fmt::format("<section>\n<h2>Settings</h2>\n{}</section>\n", to_html(table));
}

}  // namespace

std::string make_training_page(const std::vector<TrainingReport>& reports) {
  const TrainingPage page(reports);
  const std::string body = page.body();
  const bool has_timeline = body.find("<canvas") != std::string::npos;
  return make_page("shunt train: " + page.title(), body, has_timeline ? timeline_script() : Script{});
}

}  // namespace shunt::cli
