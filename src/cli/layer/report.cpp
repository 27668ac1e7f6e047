#include "cli/layer/report.hpp"

#include <fmt/format.h>

#include "cli/plural.hpp"
#include "core/file.hpp"

namespace shunt::cli {
namespace {

double megabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

void print_layer_report(const LayerConfig& config, const LayerResult& result) {
  const ShuffleConfig& shuffle = config.shuffle;
  fmt::print("\n{} on a {} device, {} per rank, hidden {}, ffn {}, {}, top-{} of {}, {}, {}\n",
             plural(shuffle.ranks, "rank"), shuffle.device, plural(shuffle.tokens, "token"), shuffle.hidden, config.ffn,
             to_string(shuffle.dtype), shuffle.topk, plural(shuffle.experts, "expert"), shuffle.routing,
             to_string(shuffle.layout));
  if (!shuffle.map_file.empty()) fmt::print("experts placed as in {}, layer {}\n", shuffle.map_file, shuffle.layer);
  fmt::print(
      "medians of {}, slowest rank; {} per rank verified, largest error {:.1e}; all repeats gave the same bits\n\n",
      plural(shuffle.iterations, "iteration"), plural(config.verified, "token"), result.largest_error);
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

void write_layer_json(const LayerConfig& config, const LayerResult& result) {
  nlohmann::ordered_json report;
  report["config"] = config.to_json();
  report["plan_ms"] = result.plan_ms;
  report["dispatch_ms"] = result.dispatch_ms;
  report["experts_ms"] = result.experts_ms;
  report["combine_ms"] = result.combine_ms;
  report["layer_ms"] = result.layer_ms;
  if (result.graph_layer_ms > 0) report["graph_layer_ms"] = result.graph_layer_ms;
  report["dense_ms"] = result.dense_ms;
  report["shuffle_share"] = result.shuffle_share;
  report["experts_tflops"] = result.tflops;
  report["dense_tflops"] = result.dense_tflops;
  report["rows"] = result.rows;
  report["rows_computed"] = result.rows_computed;
  report["rows_bytes"] = result.rows_bytes;
  report["workspace_bytes"] = result.workspace_bytes;
  report["copies_bytes"] = result.copies_bytes;
  report["largest_error"] = result.largest_error;
  report["verified"] = true;  // measure_layer() throws otherwise
  write_file(config.shuffle.json, report.dump(2) + "\n");
}

}  // namespace shunt::cli
