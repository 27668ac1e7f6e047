#include "cli/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "core/file.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

using bench::FewSmsResult, bench::LayerConfig, bench::LayerResult, bench::PruningFigures, bench::RoutingFigures;
using bench::ShuffleConfig, bench::ShuffleResult, bench::Speedup, bench::SystemResult;

/// The "config" object of a report.
nlohmann::ordered_json to_json(const ShuffleConfig& config, const std::string& world_name) {
  nlohmann::ordered_json report = {{"ranks", config.ranks},
                                   {"nodes", config.nodes},
                                   {"tokens", config.tokens},
                                   {"hidden", config.hidden},
                                   {"experts", config.experts},
                                   {"topk", config.topk},
                                   {"dtype", to_string(config.dtype)},
                                   {"layout", to_string(config.layout)},
                                   {"routing", config.routing},
                                   {"device", config.device},
                                   {"world", world_name},
                                   {"iterations", config.iterations},
                                   {"seed", config.seed}};
  if (config.sms > 0) report["sms"] = config.sms;
  if (!config.map_file.empty()) report["map"] = config.map_file;
  if (!config.map_file.empty() || config.routing.starts_with("trace:")) report["layer"] = config.layer;
  if (config.routing.starts_with("trace:")) report["first_token"] = config.first_token;
  if (config.prune.limit)
    report["prune"] = {{"limit", *config.prune.limit}, {"level", config.prune.level}, {"by", config.prune.by}};
  return report;
}

nlohmann::ordered_json to_json(const LayerConfig& config, const std::string& world_name) {
  nlohmann::ordered_json json = to_json(config.shuffle, world_name);
  json["ffn"] = config.ffn;
  if (!config.is_on_device()) json["systems"] = config.systems;
  if (!config.replica_map_file.empty()) json["replica_map"] = config.replica_map_file;
  if (config.is_on_device() && config.shuffle.layout == Layout::token_unique) json["chunks"] = config.num_chunks();
  return json;
}

/// Adds the figures of a routing, which are in every report.
void add_figures(nlohmann::ordered_json& report, const ShuffleConfig& config, const RoutingFigures& figures,
                 const std::optional<PruningFigures>& pruning) {
  report.update({{"c_t", figures.c_t}, {"c_t_node", figures.c_t_node}, {"load", figures.load}});
  if (!pruning) return;
  report["pruning"] = {{"limit", *config.prune.limit},
                       {"level", config.prune.level},
                       {"by", config.prune.by},
                       {"scores", pruning->has_scores ? "all experts" : "own experts"},
                       {"mass_kept", pruning->mass_kept},
                       {"share_changed", pruning->share_changed},
                       {"num_dropped", pruning->num_dropped},
                       {"c_t_before", pruning->before.c_t},
                       {"c_t_node_before", pruning->before.c_t_node},
                       {"c_t_after", figures.c_t},
                       {"c_t_node_after", figures.c_t_node}};
}

/// Describes the effect of pruning in two lines.
std::string describe(const ShuffleConfig& config, const RoutingFigures& after, const PruningFigures& pruning) {
  const bool counts_nodes = config.prune.level == "nodes";
  return fmt::format(
      "pruned by {} to at most {} {} per token, {}:\n"
      "    mass kept {:.4f}, tokens changed {:.1f} %, experts dropped {}, C_T by {} {:.3f} -> {:.3f}",
      config.prune.by, *config.prune.limit, config.prune.level,
      pruning.has_scores ? "scores of all experts known" : "only weights of a token's own experts known",
      pruning.mass_kept, 100 * pruning.share_changed, pruning.num_dropped, counts_nodes ? "node" : "rank",
      counts_nodes ? pruning.before.c_t_node : pruning.before.c_t, counts_nodes ? after.c_t_node : after.c_t);
}

std::string describe_planning(const ShuffleConfig& config, const SystemResult& shunt) {
  if (config.warmup == 0) return "without warm-up, times include first touches of memory";
  const double share = shunt.plan_ms / shunt.dispatch_ms;
  return share < 1 ? fmt::format("planning is {:.1f} % of dispatch", 100 * share)
                   : fmt::format("planning takes {:.1f} times as long as dispatch", share);
}

void print_links(const ShuffleResult& result) {
  if (result.least_heaviest_link_bytes == 0) return;
  const auto megabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  fmt::print("\n  busiest NIC, one way:");
  for (const SystemResult& system : result.systems)
    if (system.heaviest_link_bytes > 0)
      fmt::print(" {} {:.2f} MB,", system.name, megabytes(system.heaviest_link_bytes));
  fmt::print(" least possible {:.2f} MB\n", megabytes(result.least_heaviest_link_bytes));
}

void print_few_sms(const ShuffleConfig& config, const FewSmsResult& few) {
  fmt::print(
      "  on {} multiprocessors (seen: {}), which store {:.0f} GB/s, {:.1f} each; of the {:.0f} GB/s they could\n"
      "  deliver, dispatch reaches {:.3f} and combine {:.3f}; kernels alone {:.3f} and {:.3f}\n",
      config.sms, few.sms_seen, few.store_gbps, few.store_gbps / config.sms, few.limit_gbps, few.dispatch_share,
      few.combine_share, few.dispatch_kernel_share, few.combine_kernel_share);
  if (few.gemm_ms == 0)
    fmt::print("  no GEMM was measured beside it: no cuBLASLt was found here\n");
  else
    fmt::print(
        "  GEMM of 8192: {:.3f} ms, on the other multiprocessors {:.3f}, beside the shuffle {:.3f} ({:+.1f} %);\n"
        "  dispatch and combine {:.3f} ms, beside the GEMM {:.3f}\n",
        few.gemm_ms, few.gemm_on_rest_ms, few.gemm_beside_ms, 100 * (few.gemm_beside_ms / few.gemm_on_rest_ms - 1),
        few.pair_ms, few.pair_beside_gemm_ms);
}

nlohmann::ordered_json to_json(const FewSmsResult& few) {
  return {{"sms_seen", few.sms_seen},
          {"store_gbps", few.store_gbps},
          {"limit_gbps", few.limit_gbps},
          {"dispatch_share", few.dispatch_share},
          {"combine_share", few.combine_share},
          {"dispatch_kernel_share", few.dispatch_kernel_share},
          {"combine_kernel_share", few.combine_kernel_share},
          {"gemm_ms", few.gemm_ms},
          {"gemm_on_rest_ms", few.gemm_on_rest_ms},
          {"gemm_beside_ms", few.gemm_beside_ms},
          {"pair_ms", few.pair_ms},
          {"pair_beside_gemm_ms", few.pair_beside_gemm_ms}};
}

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

void print_report(const ShuffleConfig& config, const ShuffleResult& result, const std::string& world_name) {
  const Machine machine = Machine::detect();
  fmt::print("\n{} ({}), {}, {} per rank, hidden {}, {}, top-{} of {}, {}, {}\n", plural(config.ranks, "rank"),
             world_name, plural(config.nodes, "node"), plural(config.tokens, "token"), config.hidden,
             to_string(config.dtype), config.topk, plural(config.experts, "expert"), config.routing,
             to_string(config.layout));
  if (!config.map_file.empty()) fmt::print("experts placed as in {}, layer {}\n", config.map_file, config.layer);
  if (result.pruning) fmt::print("{}\n", describe(config, result.routing, *result.pruning));
  if (config.device != "cpu") fmt::print("on a {} device; host ", config.device);
  fmt::print("{}, {}; medians of {}, slowest rank; every output verified\n\n", machine.cpu,
             plural(machine.cores, "core"), plural(config.iterations, "iteration"));
  fmt::print("  {:<16}{:>10}{:>14}{:>13}{:>22}\n", "", "plan ms", "dispatch ms", "combine ms", "shunt is faster by");
  const SystemResult& shunt = result.systems.front();
  for (const SystemResult& system : result.systems) {
    fmt::print("  {:<16}{:>10.3f}{:>14.3f}{:>13.3f}", system.name, system.plan_ms, system.dispatch_ms,
               system.combine_ms);
    if (&system == &shunt || system.name == "wire")
      fmt::print("\n");
    else
      fmt::print("{:>13.2f}x, {:.2f}x\n", system.dispatch_ms / shunt.dispatch_ms, system.combine_ms / shunt.combine_ms);
  }
  print_links(result);
  for (const auto& [name, why] : result.skipped) fmt::print("  {:<16}skipped: {}\n", name, why);
  fmt::print("\n  copy {:.1f} GB/s (read + written), write only {:.1f}", result.copy_ceiling_gbps,
             result.write_ceiling_gbps);
  if (result.read_ceiling_gbps > 0) fmt::print(", read only {:.1f}", result.read_ceiling_gbps);
  fmt::print("\n");
  if (config.ranks_here() == config.ranks)
    fmt::print("  efficiency against the copy rate: dispatch {:.3f}, combine {:.3f}\n", result.dispatch_efficiency,
               result.combine_efficiency);
  if (shunt.dispatch_kernel_ms > 0)
    fmt::print("  kernels alone: dispatch {:.3f} ms, {:.3f}; combine {:.3f} ms, {:.3f}\n", shunt.dispatch_kernel_ms,
               result.dispatch_kernel_efficiency, shunt.combine_kernel_ms, result.combine_kernel_efficiency);
  if (shunt.planned_dispatch_ms > 0)
    fmt::print("  plan and dispatch together: {:.3f} ms, {:.3f}\n", shunt.planned_dispatch_ms,
               result.planned_dispatch_efficiency);
  if (result.pair_ms > 0)
    fmt::print("  plan, dispatch and combine, one of {} in a graph: {:.4f} ms\n", config.graph, result.pair_ms);
  if (result.stamped_pair_ms > 0)
    fmt::print(
        "  there, plan and dispatch {:.4f} ms, combine {:.4f} ms; timing them separately adds {:.4f} ms to a pair\n",
        result.graph_dispatch_ms, result.graph_combine_ms, result.stamped_pair_ms - result.pair_ms);
  if (result.few_sms) print_few_sms(config, *result.few_sms);
  fmt::print("  {}\n", describe_planning(config, shunt));
}

void write_json(const ShuffleConfig& config, const ShuffleResult& result, const std::string& world_name) {
  nlohmann::ordered_json report;
  report["config"] = to_json(config, world_name);
  add_figures(report, config, result.routing, result.pruning);
  for (const SystemResult& system : result.systems) {
    report["systems"].push_back({{"name", system.name},
                                 {"plan_ms", system.plan_ms},
                                 {"dispatch_ms", system.dispatch_ms},
                                 {"combine_ms", system.combine_ms},
                                 {"cross_node_bytes", system.cross_node_bytes},
                                 {"wire_bytes", system.wire_bytes},
                                 {"moved_bytes", system.moved_bytes}});
    if (system.planned_dispatch_ms > 0) report["systems"].back()["planned_dispatch_ms"] = system.planned_dispatch_ms;
    if (system.dispatch_kernel_ms > 0) {
      report["systems"].back()["dispatch_kernel_ms"] = system.dispatch_kernel_ms;
      report["systems"].back()["combine_kernel_ms"] = system.combine_kernel_ms;
    }
    if (system.heaviest_link_bytes > 0) report["systems"].back()["heaviest_link_bytes"] = system.heaviest_link_bytes;
  }
  if (result.least_heaviest_link_bytes > 0) report["least_heaviest_link_bytes"] = result.least_heaviest_link_bytes;
  for (const auto& [name, why] : result.skipped) report["skipped"][name] = why;
  report["copy_ceiling_gbps"] = result.copy_ceiling_gbps;
  report["write_ceiling_gbps"] = result.write_ceiling_gbps;
  report["read_ceiling_gbps"] = result.read_ceiling_gbps;
  report["dispatch_efficiency"] = result.dispatch_efficiency;
  report["combine_efficiency"] = result.combine_efficiency;
  if (result.planned_dispatch_efficiency > 0)
    report["planned_dispatch_efficiency"] = result.planned_dispatch_efficiency;
  if (result.dispatch_kernel_efficiency > 0) {
    report["dispatch_kernel_efficiency"] = result.dispatch_kernel_efficiency;
    report["combine_kernel_efficiency"] = result.combine_kernel_efficiency;
  }
  if (result.pair_ms > 0) report["pair_ms"] = result.pair_ms;
  if (result.stamped_pair_ms > 0) {
    report["graph_dispatch_ms"] = result.graph_dispatch_ms;
    report["graph_combine_ms"] = result.graph_combine_ms;
    report["stamped_pair_ms"] = result.stamped_pair_ms;
  }
  if (result.few_sms) report["few_sms"] = to_json(*result.few_sms);
  report["verified"] = true;  // measure() throws otherwise
  write_file(config.json, report.dump(2) + "\n");
}

void print_layer_report(const LayerConfig& config, const LayerResult& result) {
  const ShuffleConfig& shuffle = config.shuffle;
  fmt::print("\n{} on a {} device, {} per rank, hidden {}, ffn {}, {}, top-{} of {}, {}, {}\n",
             plural(shuffle.ranks, "rank"), shuffle.device, plural(shuffle.tokens, "token"), shuffle.hidden, config.ffn,
             to_string(shuffle.dtype), shuffle.topk, plural(shuffle.experts, "expert"), shuffle.routing,
             to_string(shuffle.layout));
  if (!shuffle.map_file.empty()) fmt::print("experts placed as in {}, layer {}\n", shuffle.map_file, shuffle.layer);
  if (result.pruning) fmt::print("{}\n", describe(shuffle, result.routing, *result.pruning));
  fmt::print(
      "medians of {}, slowest rank; {} per rank verified, largest error {:.1e}; all iterations gave the same bits\n\n",
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
  fmt::print("{} per rank verified, largest error {:.1e}; all iterations gave the same bits\n\n",
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
  report["config"] = to_json(config, world_name);
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
