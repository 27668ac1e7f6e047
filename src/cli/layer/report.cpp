#include "cli/layer/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/plural.hpp"
#include "cli/shuffle/pruning.hpp"
#include "core/file.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

double megabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e6; }

nlohmann::ordered_json to_json(const Speedup& speedup) {
  return {{"over", speedup.over}, {"median", speedup.median}, {"least", speedup.least}, {"most", speedup.most}};
}

nlohmann::ordered_json to_json(const LayerConfig& config, const LayerResult& result) {
  nlohmann::ordered_json json;
  if (result.prune_ms > 0) json["prune_ms"] = result.prune_ms;
  json.update({{"plan_ms", result.plan_ms},
               {"dispatch_ms", result.dispatch_ms},
               {"experts_ms", result.experts_ms},
               {"combine_ms", result.combine_ms},
               {"layer_ms", result.layer_ms}});
  if (result.graph_layer_ms > 0) json["graph_layer_ms"] = result.graph_layer_ms;
  json.update({{"dense_ms", result.dense_ms},
               {"shuffle_share", result.shuffle_share},
               {"experts_tflops", result.tflops},
               {"dense_tflops", result.dense_tflops},
               {"rows", result.rows},
               {"rows_computed", result.rows_computed},
               {"rows_bytes", result.rows_bytes},
               {"workspace_bytes", result.workspace_bytes},
               {"copies_bytes", result.copies_bytes},
               {"largest_error", result.largest_error}});
  add_figures(json, config.shuffle, result.routing, result.pruning);
  return json;
}

std::string to_text(const Speedup& speedup) {
  return fmt::format("{:.3f}x ({:.3f} to {:.3f})", speedup.median, speedup.least, speedup.most);
}

}  // namespace

void print_layer_report(const LayerConfig& config, const LayerResult& result) {
  const ShuffleConfig& shuffle = config.shuffle;
  fmt::print("\n{} on a {} device, {} per rank, hidden {}, ffn {}, {}, top-{} of {}, {}, {}\n",
             plural(shuffle.ranks, "rank"), shuffle.device, plural(shuffle.tokens, "token"), shuffle.hidden, config.ffn,
             to_string(shuffle.dtype), shuffle.topk, plural(shuffle.experts, "expert"), shuffle.routing,
             to_string(shuffle.layout));
  if (!shuffle.map_file.empty()) fmt::print("experts placed as in {}, layer {}\n", shuffle.map_file, shuffle.layer);
  if (result.pruning) fmt::print("{}\n", describe(shuffle, result.routing, *result.pruning));
  fmt::print(
      "medians of {}, slowest rank; {} per rank verified, largest error {:.1e}; all repeats gave the same bits\n\n",
      plural(shuffle.iterations, "iteration"), plural(config.verified, "token"), result.largest_error);
  if (result.prune_ms > 0) fmt::print("  {:<12}{:>10.3f} ms\n", "prune", result.prune_ms);
  fmt::print("  {:<12}{:>10.3f} ms\n", "plan", result.plan_ms);
  fmt::print("  {:<12}{:>10.3f}\n", "dispatch", result.dispatch_ms);
  fmt::print("  {:<12}{:>10.3f}    {:.0f} TFLOP/s\n", "experts", result.experts_ms, result.tflops);
  fmt::print("  {:<12}{:>10.3f}\n", "combine", result.combine_ms);
  fmt::print("  {:<12}{:>10.3f}    all of it, one after the other; {:.1f} % of the parts is shuffle\n", "layer",
             result.layer_ms, 100 * result.shuffle_share);
  if (result.graph_layer_ms > 0)
    fmt::print("  {:<12}{:>10.3f}    the same, one of {} in a graph\n", "", result.graph_layer_ms, shuffle.graph);
  fmt::print("  {:<12}{:>10.3f}    {:.0f} TFLOP/s: the experts' products alone, as if all rows had one expert\n",
             "dense", result.dense_ms, result.dense_tflops);
  fmt::print("\n  {} routed, {} computed (tiles are filled up): {:.1f} % more\n", plural(result.rows, "row"),
             result.rows_computed,
             100 * (static_cast<double>(result.rows_computed) / static_cast<double>(result.rows) - 1));
  if (shuffle.layout == Layout::token_unique)
    fmt::print("  {} of tokens took turns in the workspace\n", plural(config.num_chunks(), "run"));
  fmt::print("  per rank: rows {:.0f} MB, workspace of the experts {:.0f} MB, a row per (token, expert) {} {:.0f} MB\n",
             megabytes(result.rows_bytes), megabytes(result.workspace_bytes),
             shuffle.layout == Layout::token_unique ? "would take" : "takes", megabytes(result.copies_bytes));
}

void print_layer_comparison(const LayerConfig& config, const std::vector<LayerResult>& results,
                            const std::string& world_name, const std::string& library) {
  const ShuffleConfig& shuffle = config.shuffle;
  const Machine machine = Machine::detect();
  const LayerResult& first = results.front();
  double largest_error = 0;
  for (const LayerResult& result : results) largest_error = std::max(largest_error, result.largest_error);
  fmt::print("\n{} ({}), {}, {} per rank, hidden {}, ffn {}, {}, top-{} of {}, {}\n", plural(shuffle.ranks, "rank"),
             world_name, plural(shuffle.nodes, "node"), plural(shuffle.tokens, "token"), shuffle.hidden, config.ffn,
             to_string(shuffle.dtype), shuffle.topk, plural(shuffle.experts, "expert"), shuffle.routing);
  fmt::print("{}, {}; products by {}; medians of {}, slowest rank;\n", machine.cpu, plural(machine.cores, "core"),
             library, plural(shuffle.iterations, "iteration"));
  fmt::print("{} per rank verified, largest error {:.1e}; all repeats gave the same bits\n\n",
             plural(config.verified, "token"), largest_error);
  fmt::print("  {:<16}{:>9}{:>12}{:>11}{:>11}{:>10}", "ms", "plan", "dispatch", "experts", "combine", "layer");
  if (results.size() > 1) fmt::print("   {:<26}{}", "faster than " + first.name, "than the row before");
  fmt::print("\n");
  for (const LayerResult& result : results) {
    fmt::print("  {:<16}{:>9.2f}{:>12.2f}{:>11.2f}{:>11.2f}{:>10.2f}", result.name, result.plan_ms, result.dispatch_ms,
               result.experts_ms, result.combine_ms, result.layer_ms);
    if (result.over_previous) fmt::print("   {:<26}{}", to_text(result.speedup), to_text(*result.over_previous));
    fmt::print("\n");
  }
  fmt::print("  {:<16}{:>32.2f}   {:.0f} GFLOP/s: the experts' products alone, as if all rows had one expert\n\n",
             "dense", first.dense_ms, 1e3 * first.dense_tflops);
  fmt::print("  {:<16}{:>9}{:>12}{:>11}{:>11}{:>10}{:>11}{:>11}{:>11}\n", "", "sent MB", "to nodes MB", "C_T",
             "by node", "load", "shuffle", "of dense", "memory MB");
  for (const LayerResult& result : results)
    fmt::print("  {:<16}{:>9.1f}{:>12.1f}{:>11.3f}{:>11.3f}{:>10.3f}{:>9.1f} %{:>11.3f}{:>11.0f}\n", result.name,
               megabytes(result.wire_bytes), megabytes(result.cross_node_bytes), result.routing.c_t,
               result.routing.c_t_node, result.routing.load, 100 * result.shuffle_share,
               result.tflops / result.dense_tflops, megabytes(result.rows_bytes + result.workspace_bytes));
  fmt::print("\n  sent: rows from rank to rank, and of them from node to node, in one dispatch of all ranks\n");
  if (shuffle.placed) fmt::print("  map: experts placed as in {}, layer {}\n", shuffle.map_file, shuffle.layer);
  if (config.replicas) fmt::print("  replicas: as in {}, layer {}\n", config.replica_map_file, shuffle.layer);
  if (const LayerResult& last = results.back(); last.pruning)
    fmt::print("  {}\n", describe(shuffle, last.routing, *last.pruning));
}

void write_layer_json(const LayerConfig& config, const std::vector<LayerResult>& results,
                      const std::string& world_name) {
  nlohmann::ordered_json report;
  report["config"] = config.to_json(world_name);
  report.update(to_json(config, results.back()));
  for (const LayerResult& result : results) {
    nlohmann::ordered_json system = {{"name", result.name}};
    system.update(to_json(config, result));
    if (!config.is_on_device()) {
      system["wire_bytes"] = result.wire_bytes;
      system["cross_node_bytes"] = result.cross_node_bytes;
      system["speedup"] = to_json(result.speedup);
      if (result.over_previous) system["speedup_over_previous"] = to_json(*result.over_previous);
    }
    report["systems"].push_back(std::move(system));
  }
  report["verified"] = true;  // measuring throws otherwise
  write_file(config.shuffle.json, report.dump(2) + "\n");
}

}  // namespace shunt::cli
