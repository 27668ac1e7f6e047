// How long an op takes alone: measured where the table knows it, else from its work and the cluster's figures.
#pragma once

#include <algorithm>
#include <string>

#include "core/cluster.hpp"
#include "graph/cost_table.hpp"
#include "graph/graph.hpp"
#include "graph/unmeasured_ops.hpp"
#include "shunt/shuffle_volume.hpp"

namespace shunt::graph {

/// Communication keeps two links busy side by side; with both free it ends after `latency + max(near, far)`.
struct CommCost {
  double latency_s = 0, near_s = 0, far_s = 0;
  [[nodiscard]] double alone_s() const { return latency_s + std::max(near_s, far_s); }
};

struct OpCost {
  double compute_s = 0;
  double heaviest_compute_s = 0;  ///< of the rank whose experts receive the most
  CommCost comm;
  [[nodiscard]] double alone_s() const { return compute_s + comm.alone_s(); }
};

/// Every token chooses experts evenly and independently, within as many groups as it may, and all ranks receive what is
/// to be expected; one copy per token and node.
class UniformVolume : public ShuffleVolume {
 public:
  explicit UniformVolume(const Cluster& cluster) : nodes_(cluster.nodes), ranks_per_node_(cluster.ranks_per_node) {}
  [[nodiscard]] ShuffleRows rows(const ShufflePart& part) const override;

 private:
  std::int32_t nodes_, ranks_per_node_;
};

/// What is known beyond the cluster's figures. Whatever is given outlives the cost model.
struct CostSources {
  const ShuffleVolume* volume = nullptr;  ///< null: uniform routing
  const CostTable* table = nullptr;       ///< null: nothing was measured
  double measured_scale = 1;              ///< what its times are multiplied by
  UnmeasuredOps* unmeasured = nullptr;    ///< if given, collects what the table lacks
};

class CostModel {
 public:
  explicit CostModel(Cluster cluster, const CostSources& sources = {});

  [[nodiscard]] OpCost of(const Graph& graph, const Op& op) const;
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  [[nodiscard]] double compute(const Graph& graph, const Op& op) const;
  [[nodiscard]] ShuffleRows rows_of(const Graph& graph, const Op& op, ValueId plan) const;
  [[nodiscard]] CommCost shuffle(const Graph& graph, const Op& op) const;
  [[nodiscard]] CommCost all_reduce(double bytes) const;

  Cluster cluster_;
  UniformVolume uniform_;
  CostSources sources_;
};

/// Seconds of a matrix product that a device cuts into tiles: waves of tiles, the last one perhaps nearly empty.
double product_seconds(const Cluster& cluster, const Work& work, double flops_per_s);

/// Between points linearly, beyond them along the last two, before them the first.
double interpolate(const Curve& curve, double bytes);

}  // namespace shunt::graph
