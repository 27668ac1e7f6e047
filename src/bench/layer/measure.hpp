// Measures a whole Mixture-of-Experts layer, on a device or in host memory.
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

/// Ratios of another system's time over this one's, over iterations.
struct Speedup {
  std::string over{};
  double median = 1;
  double least = 1;
  double most = 1;
};

/// Milliseconds, medians over iterations of the slowest rank.
struct LayerResult {
  std::string name;
  double prune_ms = 0;  ///< on a device, where pruning is part of the layer
  double plan_ms = 0;
  double dispatch_ms = 0;
  double experts_ms = 0;
  double combine_ms = 0;
  double layer_ms = 0;        ///< all parts in sequence
  double graph_layer_ms = 0;  ///< time per layer in a graph; 0: no graph
  double dense_ms = 0;        ///< the experts' products as if all rows had one expert

  std::int64_t rows = 0;           ///< routed copies of tokens, over all ranks
  std::int64_t rows_computed = 0;  ///< the same with padding of tiles, over all ranks
  double tflops = 0;               ///< of `rows`, without padding
  double dense_tflops = 0;
  double shuffle_share = 0;  ///< plan, dispatch and combine over the sum of all parts

  RoutingFigures routing;
  std::optional<PruningFigures> pruning{};

  // In host memory only.
  Speedup speedup{};                       ///< over the first system
  std::optional<Speedup> over_previous{};  ///< over the previous system

  // Bytes of rows that one dispatch sends, over all ranks; in host memory only.
  std::uint64_t wire_bytes = 0;        ///< between ranks
  std::uint64_t cross_node_bytes = 0;  ///< between nodes

  // Per rank.
  std::size_t rows_bytes = 0;       ///< output of dispatch
  std::size_t workspace_bytes = 0;  ///< of the experts
  std::size_t copies_bytes = 0;     ///< one row per (token, expert), which `token_unique` never stores all at once

  double largest_error = 0;  ///< over verified tokens, relative to their norm
};

/// Collective. Verifies tokens of every variant (LayerVariant), then measures them in turn within each iteration and
/// verifies that all iterations give the same bits. One result per variant, the same on all ranks.
std::vector<LayerResult> measure_layer_on_host(World& world, const LayerConfig& config);

/// Collective over threads of one process that share its current device. Verifies tokens first, and that all iterations
/// give the same bits. Throws Error(unsupported) in builds without CUDA or cuBLAS.
LayerResult measure_layer(World& world, const LayerConfig& config);

/// Call before CUDA starts. Throws Error if this machine or its device memory is not sufficient.
void prepare_layer(const LayerConfig& config);

}  // namespace shunt::bench
