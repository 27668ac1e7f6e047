// shunt schedule: splits, reorders and pipelines a training step for a cluster and reports the result.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine_speed.hpp"
#include "cli/output.hpp"
#include "cli/verbs.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "graph/schedule.hpp"
#include "graph/text.hpp"
#include "graph/variations.hpp"

namespace shunt::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(
Compares three steps, all simulated on the same cluster:
  before  program order: a weight gradient beside its data gradient, an all-reduce once its gradient is ready
  tutel   all-to-alls and experts pipelined, with the best of 1, 2, 4 and 8 parts; otherwise as before
  after   the result of the passes

Times are computed from the description of the cluster unless --costs gives measured ones.

Examples:
  shunt schedule --model gpt2-s-moe --cluster v100x64
  shunt schedule --model deepseek-v3 --cluster h100x64 --json plan.json --trace trace.json
  shunt schedule --model my_model.json --cluster my_cluster.json --memory 30 --passes partition,dw
)";

struct Arguments {
  std::string model, cluster, json, costs, unmeasured, graph, trace;
  double memory_gib = 0;
  std::vector<std::string> passes;
  double dw_seconds = 1;
  double vary_percent = 0;
};

constexpr double kMs = 1e3;
constexpr double kGiB = 1 << 30;

void print_row(const char* name, const graph::Outcome& outcome) {
  const graph::Timeline& t = outcome.timeline;
  fmt::print("  {:<8}{:>10.2f}{:>12.2f}{:>14.2f}{:>14.2f}{:>12.2f}{:>12.2f}\n", name, t.step_s * kMs, t.compute_s * kMs,
             t.exposed_all_to_all_s * kMs, t.exposed_all_reduce_s * kMs, t.late_peer_s * kMs,
             static_cast<double>(outcome.memory.peak_bytes) / kGiB);
}

struct Gains {
  double less_than_before, less_than_tutel;          // exposed all-to-all, as a share
  double all_less_than_before, all_less_than_tutel;  // exposed communication of all kinds
  double speedup;
};

Gains gains_of(const graph::Schedule& schedule) {
  const auto less = [](double now, double than) { return than > 0 ? 1 - now / than : 0; };
  const graph::Timeline &before = schedule.before.timeline, &tutel = schedule.tutel.timeline,
                        &after = schedule.after.timeline;
  return {less(after.exposed_all_to_all_s, before.exposed_all_to_all_s),
          less(after.exposed_all_to_all_s, tutel.exposed_all_to_all_s), less(after.exposed_s(), before.exposed_s()),
          less(after.exposed_s(), tutel.exposed_s()), before.step_s / after.step_s};
}

void print_report(const graph::Schedule& schedule, const graph::Model& model, const Cluster& cluster) {
  fmt::print("{} on {} ({} ranks, {} nodes), hash {:016x}\n\n", model.name, cluster.name, cluster.ranks(),
             cluster.nodes, schedule.graph.hash());
  fmt::print("  {:<8}{:>10}{:>12}{:>14}{:>14}{:>12}{:>12}\n", "ms", "step", "compute", "all-to-all", "all-reduce",
             "late peer", "peak GiB");
  fmt::print("  {:<8}{:>10}{:>12}{:>28}\n", "", "", "", "exposed");
  print_row("before", schedule.before);
  print_row("tutel", schedule.tutel);
  print_row("after", schedule.after);
  fmt::print("\ntutel has {} parts; with the best number for each direction its step would take {:.2f} ms\n",
             schedule.tutel_parts, schedule.tutel_apart_s * kMs);
  const Gains gains = gains_of(schedule);
  fmt::print(
      "exposed all-to-all: {:.1f} % less than before, {:.1f} % less than tutel; step {:.2f}x and {:.2f}x faster\n",
      100 * gains.less_than_before, 100 * gains.less_than_tutel, gains.speedup,
      schedule.tutel.timeline.step_s / schedule.after.timeline.step_s);
  fmt::print("exposed communication of all kinds: {:.1f} % less than before, {:.1f} % less than tutel\n",
             100 * gains.all_less_than_before, 100 * gains.all_less_than_tutel);
  const graph::Timeline& after = schedule.after.timeline;
  fmt::print("busy: compute {:.1f} %, communication {:.1f} % of the step; links inside nodes {:.1f} %, NICs {:.1f} %\n",
             100 * after.compute_s / after.step_s, 100 * after.comm_s / after.step_s, 100 * after.near_s / after.step_s,
             100 * after.far_s / after.step_s);
  fmt::print("critical path: {:.2f} ms of compute, {:.2f} of all-to-alls, {:.2f} of all-reduces\n",
             schedule.after.critical_compute_s * kMs, schedule.after.critical_all_to_all_s * kMs,
             schedule.after.critical_all_reduce_s * kMs);
  fmt::print("all-to-alls, each alone: {:.2f} % of the step before, {:.2f} % of compute and all-to-alls\n",
             100 * schedule.step_share, 100 * schedule.plain_share);
  fmt::print("step above what no order of its ops can beat: before {:.2f} %, tutel {:.2f} %, after {:.2f} %\n",
             100 * schedule.before.step_gap(), 100 * schedule.tutel.step_gap(), 100 * schedule.after.step_gap());
  fmt::print(
      "weight gradients: the search covers {:.2f} % less than its bound and {:.2f} % of it more than greedily{}\n",
      100 * schedule.dw_gap, 100 * schedule.dw_gained, schedule.is_dw_used ? "" : "; the order before it was better");
  fmt::print("parameters and states {:.2f} GiB\nplanned in {:.2f} s\n\npasses\n",
             static_cast<double>(schedule.after.memory.fixed_bytes) / kGiB, schedule.plan_seconds);
  for (const graph::PassReport& pass : schedule.passes)
    fmt::print("  {:<12}{:>10.2f} ms -> {:>10.2f} ms{}  ({:.2f} s)\n", pass.name, pass.step_before_s * kMs,
               pass.step_after_s * kMs, pass.is_kept ? "" : ", dropped", pass.seconds);
  if (!schedule.layers.empty())
    fmt::print("\nlayers: exposed all-to-all in ms, forward and backward, and what was done\n");
  for (const graph::LayerReport& layer : schedule.layers)
    fmt::print("  {:<4}{:>7.2f} -> {:<7.2f}{:>7.2f} -> {:<7.2f}{}\n", layer.layer, layer.forward_before_s * kMs,
               layer.forward_after_s * kMs, layer.backward_before_s * kMs, layer.backward_after_s * kMs, layer.what);
}

nlohmann::ordered_json vary(const graph::Model& model, const Cluster& cluster, const graph::CostTable* table,
                            const graph::ScheduleOptions& options, double percent) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  fmt::print(
      "\neach assumption {:.0f} % less and more: exposed all-to-all less than before, than tutel; step faster than "
      "before\n",
      percent);
  for (const graph::Variation& each : graph::vary(cluster, percent / 100, table != nullptr)) {
    const graph::CostModel cost(each.cluster, {.table = table, .measured_scale = each.measured_scale});
    const Gains gains = gains_of(graph::make_schedule(model, cost, options));
    fmt::print("  {:<22}x {:<6.2f}{:>8.1f} %{:>8.1f} %{:>8.2f}x\n", each.assumption, each.factor,
               100 * gains.less_than_before, 100 * gains.less_than_tutel, gains.speedup);
    flush_stdout();
    rows.push_back({{"assumption", each.assumption},
                    {"factor", each.factor},
                    {"less_exposed_than_before", gains.less_than_before},
                    {"less_exposed_than_tutel", gains.less_than_tutel},
                    {"speedup", gains.speedup}});
  }
  return rows;
}

nlohmann::ordered_json json_of(const graph::Outcome& outcome) {
  const graph::Timeline& t = outcome.timeline;
  return {{"step_ms", t.step_s * kMs},
          {"compute_ms", t.compute_s * kMs},
          {"exposed_comm_ms", t.exposed_s() * kMs},
          {"exposed_all_to_all_ms", t.exposed_all_to_all_s * kMs},
          {"exposed_all_reduce_ms", t.exposed_all_reduce_s * kMs},
          {"late_peer_ms", t.late_peer_s * kMs},
          {"compute_utilisation", t.compute_s / t.step_s},
          {"comm_utilisation", t.comm_s / t.step_s},
          {"near_link_utilisation", t.near_s / t.step_s},
          {"nic_utilisation", t.far_s / t.step_s},
          {"step_gap", outcome.step_gap()},
          {"critical_path_ms",
           {{"compute", outcome.critical_compute_s * kMs},
            {"all_to_all", outcome.critical_all_to_all_s * kMs},
            {"all_reduce", outcome.critical_all_reduce_s * kMs}}},
          {"peak_bytes", outcome.memory.peak_bytes},
          {"fixed_bytes", outcome.memory.fixed_bytes}};
}

nlohmann::ordered_json json_of(const graph::Schedule& schedule) {
  nlohmann::ordered_json json;
  json["before"] = json_of(schedule.before);
  json["tutel"] = json_of(schedule.tutel);
  json["tutel"]["parts"] = schedule.tutel_parts;
  json["tutel"]["step_apart_ms"] = schedule.tutel_apart_s * kMs;
  json["after"] = json_of(schedule.after);
  json["after"]["dw_gap"] = schedule.dw_gap;
  json["after"]["dw_gained"] = schedule.dw_gained;
  json["after"]["dw_used"] = schedule.is_dw_used;
  json["plain_all_to_all_share"] = schedule.plain_share;
  json["all_to_all_share_of_step"] = schedule.step_share;
  json["hash"] = fmt::format("{:016x}", schedule.graph.hash());
  for (const graph::PassReport& pass : schedule.passes)
    json["passes"].push_back({{"name", pass.name},
                              {"step_before_ms", pass.step_before_s * kMs},
                              {"step_after_ms", pass.step_after_s * kMs},
                              {"kept", pass.is_kept},
                              {"seconds", pass.seconds}});
  for (const graph::LayerReport& layer : schedule.layers)
    json["layers"].push_back({{"layer", layer.layer},
                              {"forward_before_ms", layer.forward_before_s * kMs},
                              {"forward_after_ms", layer.forward_after_s * kMs},
                              {"backward_before_ms", layer.backward_before_s * kMs},
                              {"backward_after_ms", layer.backward_after_s * kMs},
                              {"what", layer.what}});
  json["plan_seconds"] = schedule.plan_seconds;
  return json;
}

/// "matmul 1.04, add 0.98": measured time over the time from the cluster's description, the slowest kind first.
std::string measured_over_assumed(const graph::Graph& step, const graph::CostModel& measured) {
  const graph::CostModel assumed(measured.cluster());
  struct Times {
    double measured_s = 0, assumed_s = 0;
  };
  std::map<std::string_view, Times> by_kind;
  for (const graph::Op& op : step.ops()) {
    if (graph::lane_of(op) != graph::Lane::compute) continue;
    Times& times = by_kind[graph::info(op.kind).name];
    times.measured_s += measured.of(step, op).compute_s;
    times.assumed_s += assumed.of(step, op).compute_s;
  }
  std::vector<std::pair<std::string_view, Times>> kinds(by_kind.begin(), by_kind.end());
  std::sort(kinds.begin(), kinds.end(),
            [](const auto& a, const auto& b) { return a.second.measured_s > b.second.measured_s; });
  std::string text;
  for (const auto& [kind, times] : kinds)
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", kind, times.measured_s / times.assumed_s);
  return text;
}

void print_sources(const graph::CostTable& table, const graph::UnmeasuredOps& unmeasured, const graph::CostModel& cost,
                   const graph::Graph& before, const graph::Graph& after) {
  const auto is_measured = [&](const graph::Op& op) {
    return graph::lane_of(op) == graph::Lane::compute && table.find(graph::cost_key(after, op)).has_value();
  };
  const auto is_compute = [](const graph::Op& op) { return graph::lane_of(op) == graph::Lane::compute; };
  fmt::print(
      "\ncompute times: measured for {} of {} ops of the schedule ({}); {} kinds and shapes that were tried are not\n",
      std::count_if(after.ops().begin(), after.ops().end(), is_measured),
      std::count_if(after.ops().begin(), after.ops().end(), is_compute),
      table.origin().empty() ? "no origin given" : table.origin(), unmeasured.size());
  fmt::print("over the cluster's figures, before: {}\n", measured_over_assumed(before, cost));
  fmt::print("over the cluster's figures, after: {}\n", measured_over_assumed(after, cost));
}

graph::CostTable load_costs(const Arguments& arguments, const std::string& device) {
  if (arguments.costs.empty()) return graph::CostTable(device);
  std::error_code ignored;
  const bool is_missing = fs::status(arguments.costs, ignored).type() == fs::file_type::not_found;
  // The file is made from the list of unmeasured ops, so it may be missing when that list is requested.
  if (is_missing && !arguments.unmeasured.empty()) return graph::CostTable(device);
  return graph::CostTable::load(arguments.costs, device);
}

void run(const Arguments& arguments) {
  const Cluster cluster =
      arguments.cluster == "this" ? bench::measure_this_cluster() : Cluster::load(arguments.cluster, ", or this");
  const graph::Model model = graph::Model::load(arguments.model, cluster.device);
  const graph::CostTable table = load_costs(arguments, cluster.device);
  for (const std::string& path : {arguments.json, arguments.unmeasured, arguments.graph, arguments.trace})
    if (!path.empty()) check_writable(path);
  graph::UnmeasuredOps unmeasured;
  const bool asks_for_unmeasured = !arguments.costs.empty() || !arguments.unmeasured.empty();
  const graph::CostTable* measured = arguments.costs.empty() ? nullptr : &table;
  const graph::CostModel cost(cluster, {.table = measured, .unmeasured = asks_for_unmeasured ? &unmeasured : nullptr});
  const graph::ScheduleOptions options = {.memory_cap_bytes = static_cast<std::int64_t>(arguments.memory_gib * kGiB),
                                          .passes = {arguments.passes.begin(), arguments.passes.end()},
                                          .dw_seconds = arguments.dw_seconds};
  const graph::Schedule schedule = graph::make_schedule(model, cost, options);
  print_report(schedule, model, cluster);
  if (measured)
    print_sources(table, unmeasured, cost, graph::build_training_step(model, cluster.ranks()), schedule.graph);
  nlohmann::ordered_json json = {{"config",
                                  {{"model", model.name},
                                   {"cluster", cluster.name},
                                   {"ranks", cluster.ranks()},
                                   {"nodes", cluster.nodes},
                                   {"memory_cap_bytes", options.memory_cap_bytes},
                                   {"costs", measured ? table.origin() : ""}}}};
  json.update(json_of(schedule));
  if (arguments.vary_percent > 0) json["variations"] = vary(model, cluster, measured, options, arguments.vary_percent);
  if (!arguments.json.empty()) write_file(arguments.json, json.dump(2) + "\n");
  if (!arguments.unmeasured.empty()) write_file(arguments.unmeasured, unmeasured.json(cluster.device));
  if (!arguments.graph.empty()) write_file(arguments.graph, graph::print(schedule.graph));
  if (!arguments.trace.empty())
    write_file(arguments.trace,
               graph::chrome_trace(schedule.graph, graph::make_program(schedule.graph, cost), schedule.after.timeline));
}

}  // namespace

void add_schedule(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* schedule =
      app.add_subcommand("schedule", "Split, reorder and pipeline a training step to hide its shuffle behind compute");
  schedule
      ->add_option("--model", arguments->model,
                   "A preset (gpt2-s-moe, gpt2-l-moe, olmoe, deepseek-v3, tiny) or a JSON file")
      ->required();
  schedule
      ->add_option(
          "--cluster", arguments->cluster,
          "A preset with a number of ranks (v100xN, a100xN, h100xN), a JSON file, or this, which measures this machine")
      ->required();
  schedule->add_option("--memory", arguments->memory_gib, "Cap on activations and buffers in GiB; 0: no cap")
      ->check(CLI::Range(0.0, 1e6));
  schedule->add_option("--passes", arguments->passes, "Run only these passes: partition, interleave, dw, all_reduce")
      ->delimiter(',');
  schedule
      ->add_option("--dw-seconds", arguments->dw_seconds, "Approximate time to search for an order of weight gradients")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  schedule
      ->add_option("--vary", arguments->vary_percent,
                   "Also schedule with each assumption decreased and increased by this percentage")
      ->check(CLI::Range(0.0, 90.0));
  schedule->add_option("--costs", arguments->costs, "File of measured op times, written by tools/measure_ops");
  schedule->add_option("--unmeasured", arguments->unmeasured,
                       "Write the ops whose times were not measured to this file, for tools/measure_ops");
  schedule->add_option("--json", arguments->json, "Write the figures to this file");
  schedule->add_option("--graph", arguments->graph, "Write the scheduled graph to this file");
  schedule->add_option("--trace", arguments->trace, "Write a trace for chrome://tracing or Perfetto to this file");
  schedule->footer(kFooter);
  schedule->callback([arguments] { run(*arguments); });
}

}  // namespace shunt::cli
