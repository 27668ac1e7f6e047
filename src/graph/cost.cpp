#include "graph/cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fail.hpp"

namespace shunt::graph {
namespace {

constexpr double kMicrosecond = 1e-6;
/// Libraries split the inner dimension into few pieces, because partial sums cost memory traffic and a further kernel.
constexpr std::int64_t kMostPiecesOfK = 16;
constexpr double kBytesOfPartialSum = 2 * sizeof(float);  // written and read

/// Libraries choose the tile that wastes least; smaller tiles read more bytes per product. The efficiencies are
/// assumptions of this model.
struct TileShape {
  std::int64_t rows_divisor, columns_divisor;
  double efficiency;
};
constexpr TileShape kTileShapes[] = {{1, 1, 1.0}, {1, 2, 0.97}, {2, 1, 0.97}, {2, 2, 0.9}};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Probability that none of `topk` distinct, uniformly drawn experts is among `there` of `experts`.
double none_among(std::int64_t there, std::int64_t experts, std::int64_t topk) {
  double chance = 1;
  for (std::int64_t i = 0; i < topk; ++i)
    chance *= std::max(0.0, static_cast<double>(experts - there - i) / static_cast<double>(experts - i));
  return chance;
}

/// The op that computed a value, behind views of it.
const Op& producer_of(const Graph& graph, ValueId value) {
  const Op& op = graph.op(graph.value(value).producer);
  const bool is_cut = op.kind == OpKind::part || op.kind == OpKind::join;
  return is_cut ? producer_of(graph, op.operands[0]) : op;
}

ShufflePart part_of(const Graph& graph, const Op& op, ValueId plan) {
  ShufflePart part{.layer = op.origin.layer, .tokens = 1};
  double all_tokens = 1;
  for (const DimId dim : graph.type(plan).dims) {
    const Dim& each = graph.dims[dim];
    if (each.role == DimRole::choice) {
      part.topk = each.size;
    } else if (each.role == DimRole::rows) {
      part.experts = graph.dims[each.groups].size * graph.ranks;
    } else {
      part.tokens *= each.size;
      all_tokens *= static_cast<double>(graph.dims[graph.dims.root(dim)].size);
      if (each.whole.valid()) part.part = each.part, part.parts = each.parts;
    }
  }
  const Op* chosen = &producer_of(graph, graph.op(graph.value(plan).producer).operands[0]);
  if (chosen->kind == OpKind::limit) {
    const double room = static_cast<double>(chosen->attributes.integer("capacity") * part.experts);
    part.kept = std::min(1.0, room / (all_tokens * static_cast<double>(part.topk)));
    chosen = &producer_of(graph, chosen->operands[0]);
  }
  if (chosen->kind == OpKind::topk) {
    part.groups = chosen->attributes.integer("groups", 1);
    part.groups_kept = chosen->attributes.integer("groups_kept", part.groups);
  }
  return part;
}

double choose(std::int64_t n, std::int64_t k) {
  double ways = k < 0 || k > n ? 0 : 1;
  for (std::int64_t i = 0; i < k && ways > 0; ++i) ways *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  return ways;
}

/// Probability that a token has an expert on a given node, if experts and groups are distributed over nodes in order.
double reaches_node(const ShufflePart& part, std::int64_t nodes) {
  const std::int64_t of_group = part.experts / part.groups, choosable = of_group * part.groups_kept;
  if (nodes > part.groups)  // a node is part of one group, which must be kept
    return static_cast<double>(part.groups_kept) / static_cast<double>(part.groups) *
           (1 - none_among(part.experts / nodes, choosable, part.topk));
  double none = 0;
  const std::int64_t here = part.groups / nodes;
  for (std::int64_t kept = 0; kept <= std::min(here, part.groups_kept); ++kept)
    none += choose(here, kept) * choose(part.groups - here, part.groups_kept - kept) /
            choose(part.groups, part.groups_kept) * none_among(kept * of_group, choosable, part.topk);
  return 1 - none;
}

}  // namespace

ShuffleRows UniformVolume::rows(const ShufflePart& part) const {
  const auto tokens = static_cast<double>(part.tokens), choices = static_cast<double>(part.topk) * part.kept;
  ShuffleRows rows;
  rows.mean = rows.heaviest = tokens * choices;
  rows.near = tokens * choices * (ranks_per_node_ - 1) / ranks_per_node_;
  rows.far = tokens * part.kept * ranks_per_node_ * (nodes_ - 1) * reaches_node(part, nodes_);
  return rows;
}

CostModel::CostModel(Cluster cluster, const CostSources& sources)
    : cluster_(std::move(cluster)), uniform_(cluster_), sources_(sources) {}

OpCost CostModel::of(const Graph& graph, const Op& op) const {
  OpCost cost;
  switch (lane_of(op)) {
    case Lane::none: break;
    case Lane::compute: {
      cost.compute_s = cost.heaviest_compute_s = compute(graph, op);
      for (const ValueId operand : op.operands) {
        if (graph.type(operand).element != Element::plan) continue;
        const ShuffleRows rows = rows_of(graph, op, operand);
        if (rows.mean > 0) cost.heaviest_compute_s = cost.compute_s * std::max(1.0, rows.heaviest / rows.mean);
      }
      break;
    }
    case Lane::comm:
      if (op.kind == OpKind::all_reduce)
        cost.comm = all_reduce(static_cast<double>(graph.bytes(op.operands[0])));
      else if (op.kind == OpKind::plan)
        cost.comm.latency_s = cluster_.ranks() > 1 ? cluster_.all_to_all_s : 0;
      else
        cost.comm = shuffle(graph, op);
  }
  return cost;
}

ShuffleRows CostModel::rows_of(const Graph& graph, const Op& op, ValueId plan) const {
  return (sources_.volume ? *sources_.volume : uniform_).rows(part_of(graph, op, plan));
}

double CostModel::compute(const Graph& graph, const Op& op) const {
  if (op.kind == OpKind::opaque) return op.attributes.real("cost_us") * kMicrosecond;
  if (sources_.table || sources_.unmeasured) {
    const std::string key = cost_key(graph, op);
    if (const auto measured = sources_.table ? sources_.table->find(key) : std::nullopt)
      return *measured * sources_.measured_scale + cluster_.kernel_s;
    if (sources_.unmeasured) sources_.unmeasured->add(key, graph, op);
  }
  const Work work = work_of(graph, op);
  const Element element = graph.type(op.results.front()).element;
  const double flops_per_s = size_of(element) == 2 ? cluster_.half_flops : cluster_.f32_flops;
  const double arithmetic = work.batch > 0 ? product_seconds(cluster_, work, flops_per_s) : work.flops / flops_per_s;
  return std::max(arithmetic, work.bytes / cluster_.memory_bytes_per_s) + cluster_.kernel_s;
}

double product_seconds(const Cluster& cluster, const Work& work, double flops_per_s) {
  const double processor_flops = flops_per_s / static_cast<double>(cluster.processors);
  double best = std::numeric_limits<double>::infinity();
  for (const TileShape& shape : kTileShapes) {
    const std::int64_t rows = std::max<std::int64_t>(1, cluster.tile / shape.rows_divisor);
    const std::int64_t columns = std::max<std::int64_t>(1, cluster.tile / shape.columns_divisor);
    const std::int64_t tiles = ceil_div(work.m, rows) * ceil_div(work.n, columns) * work.batch;
    const double tile_s = 2 * static_cast<double>(rows * columns * work.k) / processor_flops / shape.efficiency;
    const std::int64_t most = std::clamp(work.k / cluster.tile, std::int64_t{1}, kMostPiecesOfK);
    for (std::int64_t pieces = 1; pieces <= most; ++pieces) {
      const auto waves = static_cast<double>(ceil_div(tiles * pieces, cluster.processors));
      const double sums = static_cast<double>(work.m) * static_cast<double>(work.n) * static_cast<double>(work.batch);
      const double adding_s = pieces == 1 ? 0
                                          : cluster.kernel_s + static_cast<double>(pieces) * sums * kBytesOfPartialSum /
                                                                   cluster.memory_bytes_per_s;
      best = std::min(best, waves * tile_s / static_cast<double>(pieces) + adding_s);
    }
  }
  return best;
}

namespace {

double row_bytes_of(const Graph& graph, const Op& op) {
  std::int64_t width = 1;
  for (const DimId dim : graph.type(op.operands[0]).dims)
    if (!graph.type(op.operands[1]).has(dim)) width *= graph.dims[dim].size;
  return static_cast<double>(width * size_of(graph.type(op.operands[0]).element));
}

}  // namespace

double CostModel::shuffle_bytes(const Graph& graph, const Op& op) const {
  return rows_of(graph, op, op.operands[1]).heaviest * row_bytes_of(graph, op);
}

CommCost CostModel::shuffle(const Graph& graph, const Op& op) const {
  CommCost cost;
  if (cluster_.ranks() == 1) return cost;
  if (!cluster_.all_to_all.empty()) {
    cost.far_s = interpolate(cluster_.all_to_all, shuffle_bytes(graph, op));
    return cost;
  }
  const double row_bytes = row_bytes_of(graph, op);
  const ShuffleRows rows = rows_of(graph, op, op.operands[1]);
  cost.latency_s = cluster_.all_to_all_s;
  cost.near_s = rows.near * row_bytes / cluster_.near_bytes_per_s;
  cost.far_s = cluster_.nodes > 1 ? rows.far * row_bytes / cluster_.far_bytes_per_s : 0;
  return cost;
}

/// Reduce and gather inside nodes, and a ring between nodes.
CommCost CostModel::all_reduce(double bytes) const {
  CommCost cost;
  if (cluster_.ranks() == 1) return cost;
  if (!cluster_.all_reduce.empty()) {
    cost.far_s = interpolate(cluster_.all_reduce, bytes);
    return cost;
  }
  const auto ring = [](std::int32_t members) { return 2.0 * (members - 1) / members; };
  cost.latency_s = cluster_.all_reduce_s;
  cost.near_s = ring(cluster_.ranks_per_node) * bytes / cluster_.near_bytes_per_s;
  cost.far_s = ring(cluster_.nodes) * bytes / cluster_.far_bytes_per_s;
  return cost;
}

double interpolate(const Curve& curve, double bytes) {
  if (bytes <= curve.front().first) return curve.front().second;
  std::size_t right = 1;
  while (right + 1 < curve.size() && curve[right].first < bytes) ++right;
  const auto& [x0, y0] = curve[right - 1];
  const auto& [x1, y1] = curve[right];
  return std::max(0.0, y0 + (y1 - y0) * (bytes - x0) / (x1 - x0));
}

}  // namespace shunt::graph
