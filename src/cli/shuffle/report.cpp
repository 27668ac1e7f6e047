#include "cli/shuffle/report.hpp"

#include <fmt/format.h>

#include "cli/plural.hpp"
#include "cli/shuffle/pruning.hpp"
#include "core/file.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

std::string describe_planning(const ShuffleConfig& config, const SystemResult& shunt) {
  if (config.warmup == 0) return "nothing was warmed up, so times include first touches";
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
        "  there, plan and dispatch {:.4f} ms, combine {:.4f} ms; telling them apart takes {:.4f} ms of a pair\n",
        result.graph_dispatch_ms, result.graph_combine_ms, result.stamped_pair_ms - result.pair_ms);
  if (result.few_sms) print_few_sms(config, *result.few_sms);
  fmt::print("  {}\n", describe_planning(config, shunt));
}

void write_json(const ShuffleConfig& config, const ShuffleResult& result, const std::string& world_name) {
  nlohmann::ordered_json report;
  report["config"] = config.to_json(world_name);
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

}  // namespace shunt::cli
