// Measures a whole Mixture-of-Experts layer, on a device or on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/layer/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// How many times as fast as another system, iteration by iteration.
struct Speedup {
  std::string over{};
  double median = 1;
  double least = 1;
  double most = 1;
};

/// Milliseconds, medians over iterations of the slowest rank.
struct LayerResult {
  std::string name;
  double prune_ms = 0;  ///< on a device, where tokens are pruned as part of the layer
  double plan_ms = 0;
  double dispatch_ms = 0;
  double experts_ms = 0;
  double combine_ms = 0;
  double layer_ms = 0;        ///< all of it, one after the other
  double graph_layer_ms = 0;  ///< one of the layers in a graph; 0: none was asked for
  double dense_ms = 0;        ///< the experts' products as if all rows had one expert

  std::int64_t rows = 0;           ///< routed copies of tokens, over all ranks
  std::int64_t rows_computed = 0;  ///< the same with tiles that are filled up, over all ranks
  double tflops = 0;               ///< of the rows, without what fills up
  double dense_tflops = 0;
  double shuffle_share = 0;  ///< of plan, dispatch and combine in their sum with the experts

  RoutingFigures routing;
  std::optional<PruningFigures> pruning{};

  // On the host.
  Speedup speedup{};                       ///< over the first system
  std::optional<Speedup> over_previous{};  ///< over the one before

  // Bytes of rows that one dispatch sends, over all ranks; on the host.
  std::uint64_t wire_bytes = 0;        ///< between ranks
  std::uint64_t cross_node_bytes = 0;  ///< between nodes

  // Of a rank.
  std::size_t rows_bytes = 0;       ///< what dispatch delivers
  std::size_t workspace_bytes = 0;  ///< of the experts
  std::size_t copies_bytes = 0;     ///< of one row per (token, expert), which `token_unique` does not store all at once

  double largest_error = 0;  ///< of a verified token, relative to its norm
};

/// Collective. Verifies tokens of every variant (variant.hpp), then measures them in turn, iteration by iteration; at
/// the end verifies that all repeats gave the same bits. One result per variant, the same on all ranks.
std::vector<LayerResult> measure_layer_on_host(World& world, const LayerConfig& config);

/// Collective over threads of one process that share its current device. Verifies tokens first, and at the end that all
/// repeats gave the same bits. Throws Error(unsupported) in builds without CUDA or cuBLAS.
LayerResult measure_layer(World& world, const LayerConfig& config);

/// Before CUDA starts, and before anything else is. Throws Error that says what is missing, or what does not fit.
void prepare_layer(const LayerConfig& config);

}  // namespace shunt::bench
