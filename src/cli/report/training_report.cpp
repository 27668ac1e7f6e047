#include "cli/report/training_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/read_numbers.hpp"

namespace shunt::cli {
namespace {

using nlohmann::json;
using Report = TrainingReport;
using Run = Report::Run;

constexpr std::size_t kMostRuns = 64, kMostSpans = 1 << 18, kMostNameBytes = 200;
constexpr std::int64_t kMostRows = std::int64_t{1} << 53;  // JSON numbers of other programs are exact up to here

std::optional<std::int64_t> optional_count(JsonFields& fields, const std::string& key) {
  if (!fields.has(key)) return std::nullopt;
  return fields.integer(key, 0, kMostRows);
}

std::string read_name(JsonFields& fields, const std::string& key, std::optional<std::string> fallback = {}) {
  std::string name = fields.text(key, std::move(fallback));
  if (name.size() > kMostNameBytes)
    fields.refuse(key, fmt::format("a name of {} bytes, expected at most {}", name.size(), kMostNameBytes));
  return name;
}

Report::HeldOut read_evaluation(JsonFields& fields) {
  return {.step = fields.integer("step", 0, kMostRows),
          .bits_per_byte = fields.real("bits_per_byte", 0, kMostFigure),
          .seconds = fields.optional_real("seconds", 0, kMostFigure)};
}

Span read_span(JsonFields& fields) {
  Span span;
  span.op = read_name(fields, "op", "");
  span.layer = fields.integer("layer", -1, INT32_MAX, -1);
  const std::string phase =
      fields.choice("phase", {"forward", "backward", "update", Report::kPhases.back()}, Report::kPhases.back());
  span.kind = static_cast<std::size_t>(std::ranges::find(Report::kPhases, phase) - Report::kPhases.begin());
  span.begin_ms = fields.real("begin_ms", -kMostFigure, kMostFigure);
  span.end_ms = fields.real("end_ms", -kMostFigure, kMostFigure);
  if (span.end_ms < span.begin_ms)
    fields.refuse("end_ms", fmt::format("{}, but the span begins at {}", span.end_ms, span.begin_ms));
  return span;
}

std::vector<Lane> read_lanes(JsonFields& fields, const std::string& key) {
  if (!fields.has(key)) return {};
  if (const std::size_t size = fields.list(key).size(); size > kMostSpans)
    fields.refuse(key, fmt::format("{} spans, expected at most {}", size, kMostSpans));
  std::vector<Lane> lanes = {{"compute", {}}, {"comm", {}}};
  for (JsonFields& span : fields.objects(key)) {
    const bool is_compute = span.choice("lane", {"compute", "comm"}) == "compute";
    lanes[is_compute ? 0 : 1].spans.push_back(read_span(span));
  }
  std::erase_if(lanes, [](const Lane& lane) { return lane.spans.empty(); });
  return lanes;
}

void read_traffic(JsonFields& fields, Run& run) {
  const json& rows = fields.list("rows");
  run.ranks = rows.size();
  for (std::size_t rank = 0; rank < run.ranks; ++rank)
    for (const std::uint64_t count : read_numbers<std::uint64_t>(fields, fmt::format("rows[{}]", rank), rows[rank],
                                                                 run.ranks, 0, std::uint64_t{kMostRows}))
      run.traffic.push_back(static_cast<std::int64_t>(count));
}

Run read_run(JsonFields& fields) {
  Run run;
  run.schedule = read_name(fields, "schedule");
  run.shuffle = read_name(fields, "shuffle", "");
  run.placement = read_name(fields, "placement", "");
  run.prune = optional_count(fields, "prune");
  run.step_ms = fields.real("step_ms", 0, kMostFigure);
  run.exposed_comm_ms = fields.optional_real("exposed_comm_ms", 0, kMostFigure);
  run.products_ms = fields.optional_real("products_ms", 0, kMostFigure);
  run.other_compute_ms = fields.optional_real("other_compute_ms", 0, kMostFigure);
  run.predicted_step_ms = fields.optional_real("predicted_step_ms", 0, kMostFigure);
  run.cross_node_bytes = optional_count(fields, "cross_node_bytes");
  if (fields.has("losses"))
    run.losses = read_numbers<double>(fields, "losses", fields.list("losses"), kAnySize, 0, kMostFigure);
  if (fields.has("held_out"))
    for (JsonFields& evaluation : fields.objects("held_out")) run.held_out.push_back(read_evaluation(evaluation));
  if (fields.has("timeline")) {
    JsonFields timeline = fields.object("timeline");
    run.measured = read_lanes(timeline, "measured");
    run.predicted = read_lanes(timeline, "predicted");
  }
  if (fields.has("traffic")) {
    JsonFields traffic = fields.object("traffic");
    if (traffic.has("rows")) read_traffic(traffic, run);
  }
  return run;
}

std::vector<std::pair<std::string, std::string>> read_config(JsonFields& fields, const json& config) {
  if (config.contains("model")) (void)read_name(fields, "model");
  for (const char* key : {"ranks", "batch", "sequence", "steps", "seed"})
    if (config.contains(key) && !config[key].is_number_integer()) fields.refuse(key, "expected a whole number");
  std::vector<std::pair<std::string, std::string>> entries;
  for (const auto& [key, value] : config.items())
    if (value.is_string())
      entries.emplace_back(key, value.get<std::string>());
    else if (value.is_number() || value.is_boolean())
      entries.emplace_back(key, value.dump());
  return entries;
}

}  // namespace

std::string TrainingReport::setting(const std::string& key) const {
  const auto entry = std::ranges::find(config, key, &std::pair<std::string, std::string>::first);
  return entry == config.end() ? "" : entry->second;
}

TrainingReport read_training_report(const std::string& source, const json& content) {
  JsonFields fields(source, "", content);
  TrainingReport report;
  if (fields.has("config")) {
    JsonFields config = fields.object("config");
    report.config = read_config(config, content["config"]);
  }
  std::vector<JsonFields> runs = fields.objects("runs");
  if (runs.empty() || runs.size() > kMostRuns)
    fields.refuse("runs", fmt::format("{} of them, expected 1 to {}", runs.size(), kMostRuns));
  for (JsonFields& run : runs) report.runs.push_back(read_run(run));
  return report;
}

}  // namespace shunt::cli
