#include "runtime/profile.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/fail.hpp"
#include "core/median.hpp"
#include "graph/cost.hpp"
#include "graph/passes/range_costs.hpp"
#include "graph/split.hpp"

namespace shunt::runtime {
namespace {

using graph::Op;
using graph::OpId;
using graph::OpKind;

constexpr std::int32_t kParts[] = {1, 2, 4};

/// Every op that can be split along the batch is, in the order of the whole step.
graph::Graph in_parts(const graph::Graph& step, std::int32_t parts) {
  if (parts == 1) return step;
  const graph::Blocks blocks = graph::find_blocks(step);
  return graph::split(step, graph::parts_of_ops(step, blocks, {{0, blocks.count, parts, graph::BackwardReach::range}}))
      .graph;
}

/// Seconds of each op, by step.
std::vector<std::vector<double>> seconds_by_step(Trainer& trainer, const ProfileOptions& options) {
  std::vector<std::vector<double>> seconds;
  for (std::int64_t i = 0; i < options.warmup + options.steps; ++i) {
    (void)trainer.step();
    if (i < options.warmup) continue;
    std::vector<double>& of_step = seconds.emplace_back();
    for (const auto& span : trainer.executor().times().ops) of_step.push_back(span.end_s - span.begin_s);
  }
  return seconds;
}

/// By rank: [steps × ops].
std::vector<std::vector<double>> gather(World& world, const std::vector<std::vector<double>>& mine) {
  std::vector<double> flat;
  for (const auto& of_step : mine) flat.insert(flat.end(), of_step.begin(), of_step.end());
  std::vector<std::vector<double>> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(flat)))) {
    if (bytes.size() != flat.size() * sizeof(double))
      fail(ErrorCode::mismatch, "rank {} received times of {} bytes, expected {}", world.rank(), bytes.size(),
           flat.size() * sizeof(double));
    std::memcpy(all.emplace_back(flat.size()).data(), bytes.data(), bytes.size());
  }
  return all;
}

/// One op's median over the steps of what `combine` makes of the ranks' times.
template <class Combine>
double over_ranks(const std::vector<std::vector<double>>& ranks, std::size_t steps, std::size_t ops, std::size_t op,
                  const Combine& combine) {
  std::vector<double> of_steps, of_ranks(ranks.size());
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) of_ranks[rank] = ranks[rank][step * ops + op];
    of_steps.push_back(combine(of_ranks));
  }
  return median(of_steps);
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double least(const std::vector<double>& values) { return std::ranges::min(values); }

using Samples = std::map<double, std::vector<double>>;  // seconds by bytes

graph::CostModel volume_model(std::int32_t ranks) {
  Cluster cluster;
  cluster.ranks_per_node = ranks;
  return graph::CostModel(cluster);
}

/// Ascending, and never falling: a larger transfer does not take less time.
Curve curve_of(const Samples& samples) {
  Curve curve;
  for (const auto& [bytes, seconds] : samples)
    curve.emplace_back(bytes, std::max(median(seconds), curve.empty() ? 0 : curve.back().second));
  return curve;
}

}  // namespace

Profile measure_profile(World& world, const graph::Model& model, const Corpus& corpus, const TrainerOptions& training,
                        const ProfileOptions& options) {
  Profile profile;
  const graph::Graph step = graph::build_training_step(model, world.size());
  const graph::CostModel volume = volume_model(world.size());
  TrainerOptions one_at_a_time = training;
  one_at_a_time.executor.transfers_in_flight = 1;
  Samples shuffles, sums, plans;
  std::map<std::string, std::vector<double>> computed;
  for (const std::int32_t parts : kParts) {
    if (parts > graph::most_parts(step)) break;
    Trainer trainer(world, model, in_parts(step, parts), corpus, one_at_a_time);
    const auto mine = seconds_by_step(trainer, options);
    const auto ranks = gather(world, mine);
    const graph::Graph& executed = trainer.executor().graph();
    const std::size_t ops = executed.ops().size();
    for (std::size_t i = 0; i < ops; ++i) {
      const Op& op = executed.op(OpId(i));
      if (graph::lane_of(op) == graph::Lane::compute)
        computed[graph::cost_key(executed, op)].push_back(over_ranks(ranks, mine.size(), ops, i, mean));
      if (graph::lane_of(op) != graph::Lane::comm) continue;
      const double seconds = over_ranks(ranks, mine.size(), ops, i, least);
      if (op.kind == OpKind::plan)
        plans[0].push_back(seconds);
      else if (op.kind == OpKind::all_reduce)
        sums[static_cast<double>(executed.bytes(op.operands[0]))].push_back(seconds);
      else
        shuffles[volume.shuffle_bytes(executed, op)].push_back(seconds);
    }
  }
  for (const auto& [key, seconds] : computed) profile.table.set(key, mean(seconds));
  Cluster& cluster = profile.cluster;
  cluster.name = "measured";
  cluster.origin = "shunt train --profile";
  cluster.device = "cpu";
  cluster.ranks_per_node = world.size();
  cluster.f32_flops = cluster.half_flops = 5e10;  // for ops that no number of parts has shown
  cluster.memory_bytes_per_s = 1e10;
  cluster.tile = 1;
  cluster.all_to_all = curve_of(shuffles);
  cluster.all_reduce = curve_of(sums);
  if (!plans.empty()) cluster.all_to_all_s = median(plans[0]);
  return profile;
}

}  // namespace shunt::runtime
