#include "support/prune_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "support/dice.hpp"

namespace shunt::test {
namespace {

/// Few different values, so that many are equal; or thousandths, whose sums are rounded.
std::vector<float> random_scores(Dice& dice, std::size_t count) {
  const std::int32_t steps = dice.pick({3, 1000});
  std::vector<float> scores;
  for (std::size_t i = 0; i < count; ++i)
    scores.push_back(static_cast<float>(dice.between(0, steps)) / static_cast<float>(steps));
  return scores;
}

/// Each token names its best-scored experts; drops stay where they are.
void choose_best(RankRouting& routing, const std::vector<float>& scores, std::size_t topk, std::size_t num_experts) {
  for (std::size_t token = 0; token < routing.experts.size() / topk; ++token) {
    const float* const of_token = scores.data() + token * num_experts;
    std::vector<std::int32_t> order(num_experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return of_token[a] > of_token[b]; });
    auto best = order.begin();
    for (std::int32_t& expert : std::span(routing.experts).subspan(token * topk, topk))
      if (expert >= 0) expert = *best++;
  }
}

void weigh_by_score(RankRouting& routing, const std::vector<float>& scores, std::size_t topk, std::size_t num_experts) {
  for (std::size_t entry = 0; entry < routing.weights.size(); ++entry)
    if (const std::int32_t expert = routing.experts[entry]; expert >= 0)
      routing.weights[entry] = scores[entry / topk * num_experts + static_cast<std::size_t>(expert)];
}

}  // namespace

PruneCase random_prune_case(std::uint64_t seed, const CaseLimits& limits) {
  std::mt19937_64 generator(seed);
  RandomCase all = random_case(generator, limits);
  Dice dice(generator);
  RankRouting routing;
  for (const RankRouting& rank : all.ranks)
    if (rank.experts.size() > routing.experts.size()) routing = rank;
  const auto topk = static_cast<std::size_t>(all.topk);
  const auto num_experts = static_cast<std::size_t>(all.map.num_experts());
  PruneCase made{all.topology, all.map, all.topk, std::move(routing)};
  if (!dice.one_in(4)) {
    made.scores = random_scores(dice, made.routing().num_tokens() * num_experts);
    if (!dice.one_in(3)) choose_best(made.chosen, made.scores, topk, num_experts);
    if (dice.one_in(2)) weigh_by_score(made.chosen, made.scores, topk, num_experts);
  }
  if (dice.one_in(3))
    made.similarity = ExpertSimilarity::from_scores(random_scores(dice, 5 * num_experts), 5, all.map.num_experts());
  made.limit = dice.pick({1, 1, 2, 2, 3, made.topk});
  made.level = dice.one_in(4) ? PruneLevel::nodes : PruneLevel::ranks;
  made.renormalise = dice.one_in(2) ? Renormalise::keep_sum : Renormalise::none;
  if (!dice.one_in(3)) made.source = RankId(dice.between(0, all.topology.num_ranks() - 1));
  return made;
}

std::string PruneCase::describe() const {
  return fmt::format("{} tokens, top-{} of {} experts, {} copies, {} ranks, {} nodes, limit {} {}{}{}{}{}, source {}",
                     routing().num_tokens(), topk, map.num_experts(), map.num_physical(), map.num_ranks(),
                     topology.num_nodes(), limit, level == PruneLevel::nodes ? "nodes" : "ranks",
                     chosen.weights.empty() ? ", no weights" : "", scores.empty() ? ", no scores" : "",
                     similarity ? ", by similarity" : "", renormalise == Renormalise::keep_sum ? ", sum kept" : "",
                     source.value);
}

}  // namespace shunt::test
