#include "cli/report/place_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/read_numbers.hpp"

namespace shunt::cli {
namespace {

using nlohmann::json;
using Report = PlaceReport;

constexpr std::int64_t kMostExperts = 1 << 20, kMostNodes = 1 << 12, kMostRanksPerNode = 1 << 10, kMostRanks = 1 << 12;
constexpr std::size_t kMostMethods = 16, kMostLayers = 1 << 16, kMostNameBytes = 100;

Report::Figures read_figures(JsonFields& fields) {
  return {.c_t = fields.real("c_t", 0, kMostFigure),
          .c_t_node = fields.real("c_t_node", 0, kMostFigure),
          .load = fields.real("load", 0, kMostFigure),
          .estimated_ms = fields.real("estimated_ms", 0, kMostFigure)};
}

std::optional<Report::Figures> read_held_out(JsonFields& fields, bool is_expected) {
  if (!is_expected) return std::nullopt;
  JsonFields held_out = fields.object("held_out");
  return read_figures(held_out);
}

Report::Layer read_layer(JsonFields& fields, std::size_t ranks, bool has_held_out) {
  return {.number = fields.integer("layer", 0, INT32_MAX),
          .training = read_figures(fields),
          .held_out = read_held_out(fields, has_held_out),
          .load_limit = fields.optional_real("load_limit", 0, kMostFigure),
          .rank_load = read_numbers<double>(fields, "rank_load", fields.list("rank_load"), ranks, 0, kMostFigure)};
}

Report::Method read_method(JsonFields& fields, std::size_t ranks, std::size_t num_layers, bool has_held_out) {
  Report::Method method;
  method.name = fields.text("method");
  if (method.name.empty() || method.name.size() > kMostNameBytes)
    fields.refuse("method", fmt::format("a name of {} bytes, expected 1 to {}", method.name.size(), kMostNameBytes));
  method.training = read_figures(fields);
  method.held_out = read_held_out(fields, has_held_out);
  for (JsonFields& layer : fields.objects("layers")) method.layers.push_back(read_layer(layer, ranks, has_held_out));
  if (method.layers.size() != num_layers)
    fields.refuse("layers", fmt::format("{} of them, but the report is about {}", method.layers.size(), num_layers));
  return method;
}

std::vector<Report::Method> read_methods(JsonFields& fields, std::size_t ranks, std::size_t num_layers) {
  std::vector<JsonFields> entries = fields.objects("methods");
  if (entries.empty() || entries.size() > kMostMethods)
    fields.refuse("methods", fmt::format("{} of them, expected 1 to {}", entries.size(), kMostMethods));
  const bool has_held_out = entries.front().has("held_out");
  std::vector<Report::Method> methods;
  for (JsonFields& entry : entries) {
    methods.push_back(read_method(entry, ranks, num_layers, has_held_out));
    for (std::size_t i = 0; i < num_layers; ++i)
      if (const std::int64_t number = methods.back().layers[i].number, first = methods.front().layers[i].number;
          number != first)
        entry.refuse(fmt::format("layers[{}].layer", i),
                     fmt::format("{}, but methods[0] has layer {} there", number, first));
  }
  return methods;
}

Report::Heat read_heat(JsonFields& fields, const Report& report) {
  const auto experts = static_cast<std::size_t>(report.experts);
  Report::Heat heat;
  heat.layer = fields.integer("layer", 0, INT32_MAX);
  const auto& layers = report.methods.front().layers;
  if (std::none_of(layers.begin(), layers.end(), [&](const auto& layer) { return layer.number == heat.layer; }))
    fields.refuse("layer", fmt::format("{}, which no method has", heat.layer));
  const json& rows = fields.list("co_activation");
  if (rows.size() != experts)
    fields.refuse("co_activation", fmt::format("{} rows, expected {} (experts)", rows.size(), experts));
  for (std::size_t row = 0; row < experts; ++row) {
    const auto numbers = read_numbers<double>(fields, fmt::format("co_activation[{}]", row), rows[row], experts, 0, 1);
    heat.co_activation.insert(heat.co_activation.end(), numbers.begin(), numbers.end());
  }
  const auto read_order = [&](const char* key, std::size_t size) {
    return read_numbers<std::size_t>(fields, key, fields.list(key), size, 0, experts - 1);
  };
  heat.before = read_order("before", experts);
  heat.after = read_order("after", kAnySize);
  if (heat.after.empty()) fields.refuse("after", "expected at least one expert");
  heat.rank_begin = read_numbers<std::size_t>(fields, "rank_begin", fields.list("rank_begin"), report.ranks() + 1, 0,
                                              heat.after.size());
  if (heat.rank_begin.front() != 0 || heat.rank_begin.back() != heat.after.size() ||
      !std::is_sorted(heat.rank_begin.begin(), heat.rank_begin.end()))
    fields.refuse("rank_begin", fmt::format("expected positions that ascend from 0 to {}", heat.after.size()));
  return heat;
}

}  // namespace

PlaceReport read_place_report(JsonFields& fields) {
  Report report;
  report.trace = fields.text("trace");
  report.objective = fields.choice("objective", {"c_t", "time"});
  report.experts = fields.integer("experts", 1, kMostExperts);
  report.topk = fields.integer("topk", 1, kMostExperts);
  const std::int64_t num_layers = fields.integer("layers", 1, kMostLayers);
  report.nodes = fields.integer("nodes", 1, kMostNodes);
  report.ranks_per_node = fields.integer("ranks_per_node", 1, kMostRanksPerNode);
  if (report.nodes * report.ranks_per_node > kMostRanks)
    fields.refuse("nodes", fmt::format("{} nodes of {} ranks, expected at most {} ranks in all", report.nodes,
                                       report.ranks_per_node, kMostRanks));
  report.cluster = fields.text("cluster");
  report.hidden = fields.integer("hidden", 1, INT32_MAX);
  report.dtype = fields.text("dtype");
  report.replicas = fields.real("replicas", 0, kMostFigure);
  report.load_limit = fields.optional_real("load_limit", 0, kMostFigure);
  report.holdout = fields.optional_real("holdout", 0, 1);
  report.methods = read_methods(fields, report.ranks(), static_cast<std::size_t>(num_layers));
  for (JsonFields& heat : fields.objects("heat")) report.heat.push_back(read_heat(heat, report));
  return report;
}

}  // namespace shunt::cli
