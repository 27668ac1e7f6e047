// The time of an op on its own: measured if the table has it, else derived from its work and the cluster's figures.
#pragma once

#include <algorithm>
#include <string>

#include "core/cluster.hpp"
#include "graph/cost_table.hpp"
#include "graph/graph.hpp"
#include "shunt/shuffle_volume.hpp"

namespace shunt::graph {

/// Communication uses two links at once; with both free it takes `latency + max(near, far)`.
struct CommCost {
  double latency_s = 0, near_s = 0, far_s = 0;
  [[nodiscard]] double alone_s() const { return latency_s + std::max(near_s, far_s); }
};

struct OpCost {
  double compute_s = 0;
  double heaviest_compute_s = 0;  ///< on the rank whose experts receive the most rows
  CommCost comm;
  [[nodiscard]] double alone_s() const { return compute_s + comm.alone_s(); }
};

/// Uniform routing: every token chooses experts evenly and independently, within as many groups as it may, and all
/// ranks receive the expected number of rows; one copy per token and node.
class UniformVolume : public ShuffleVolume {
 public:
  explicit UniformVolume(const Cluster& cluster) : nodes_(cluster.nodes), ranks_per_node_(cluster.ranks_per_node) {}
  [[nodiscard]] ShuffleRows rows(const ShufflePart& part) const override;

 private:
  std::int32_t nodes_, ranks_per_node_;
};

/// Optional inputs of a cost model besides the cluster's figures. The objects must outlive the model.
struct CostSources {
  const ShuffleVolume* volume = nullptr;  ///< null: uniform routing
  const CostTable* table = nullptr;       ///< null: no measured times
  double measured_scale = 1;              ///< factor on measured times
  UnmeasuredOps* unmeasured = nullptr;    ///< collects the ops that the table lacks; may be null
};

class CostModel {
 public:
  explicit CostModel(Cluster cluster, const CostSources& sources = {});

  [[nodiscard]] OpCost of(const Graph& graph, const Op& op) const;
  /// Bytes that the heaviest rank of an all-to-all receives, by which Cluster::all_to_all is ordered.
  [[nodiscard]] double shuffle_bytes(const Graph& graph, const Op& op) const;
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

/// Seconds of a matrix product that a device divides into tiles: full waves of tiles, and a last one that may be nearly
/// empty.
double product_seconds(const Cluster& cluster, const Work& work, double flops_per_s);

/// Linear between points and beyond the last one; constant before the first.
double interpolate(const Curve& curve, double bytes);

}  // namespace shunt::graph
