#include "plan/prune.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/fail.hpp"
#include "core/narrow_routing.hpp"
#include "plan/request.hpp"
#include "shunt/pruning.hpp"

namespace shunt {
namespace {

/// The ranks or nodes that have a copy of the expert, ascending, each once.
std::vector<std::int32_t> places_of(ExpertId expert, const ExpertMap& map, const Topology& topology, PruneLevel level) {
  std::vector<std::int32_t> places;
  for (const PhysicalId copy : map.copies(expert)) {
    const RankId rank = map.rank(copy);
    places.push_back(level == PruneLevel::nodes ? topology.node(rank).value : rank.value);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

/// Called after check_scores, so scores are valid.
[[noreturn]] void fail_entry(const Routing& routing, const ExpertMap& map, std::size_t token,
                             TokenPruner::Fault fault) {
  const std::size_t entry = token * static_cast<std::size_t>(routing.topk) + static_cast<std::size_t>(fault.slot);
  const std::int32_t expert = routing.experts.narrow()[entry];
  if (fault.kind == PruneFault::out_of_range)
    fail(ErrorCode::invalid_argument, "prune: token {}: expert {} is out of range, expected -1 to {}", token, expert,
         map.num_experts() - 1);
  if (fault.kind == PruneFault::repeated)
    fail(ErrorCode::invalid_argument, "prune: token {}: expert {} is named twice", token, expert);
  fail(ErrorCode::invalid_argument, "prune: token {}: the weight of expert {} is {}, expected a finite one", token,
       expert, routing.weight(entry));
}

/// A loop without branches, which vectorises; the culprit is searched for only if there is one.
void check_scores(std::span<const float> scores, std::size_t token) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto is_sound = [](float score) { return (score >= 0) & (score <= kLargest); };
  bool all_sound = true;
  for (const float score : scores) all_sound &= is_sound(score);
  if (all_sound) return;
  const auto culprit = std::find_if_not(scores.begin(), scores.end(), is_sound);
  fail(ErrorCode::invalid_argument,
       "prune: token {}: the score of expert {} is {}, expected a probability: finite and not negative", token,
       culprit - scores.begin(), *culprit);
}

}  // namespace

PlaceWords::PlaceWords(const ExpertMap& map, const Topology& topology, PruneLevel level)
    : num_experts_(map.num_experts()) {
  const auto num_places =
      static_cast<std::size_t>(level == PruneLevel::nodes ? topology.num_nodes() : topology.num_ranks());
  std::vector<std::int32_t> places_begin{0}, places, experts_begin{0}, experts;
  std::vector<std::vector<std::int32_t>> experts_of(num_places);
  for (std::int32_t expert = 0; expert < num_experts_; ++expert) {
    for (const std::int32_t place : places_of(ExpertId(expert), map, topology, level)) {
      places.push_back(place);
      experts_of[static_cast<std::size_t>(place)].push_back(expert);
    }
    places_begin.push_back(static_cast<std::int32_t>(places.size()));
  }
  for (const auto& of_place : experts_of) {
    experts.insert(experts.end(), of_place.begin(), of_place.end());
    experts_begin.push_back(static_cast<std::int32_t>(experts.size()));
  }
  for (const auto& table : {places_begin, places, experts_begin, experts}) {
    begins_.push_back(words_.size());
    words_.insert(words_.end(), table.begin(), table.end());
  }
}

PlaceTables PlaceWords::at(const std::int32_t* words) const {
  return {num_experts_, words + begins_[0], words + begins_[1], words + begins_[2], words + begins_[3]};
}

CopiesFromSource copies_from(const PruneOptions& options, const CopyTables& tables, const Topology& topology) {
  return {.tables = tables,
          .num_ranks = topology.num_ranks(),
          .source = options.source.value,
          .source_node = topology.node(options.source).value,
          .places_are_nodes = options.level == PruneLevel::nodes};
}

void check_pruning(const Routing& routing, std::size_t num_scores, const ExpertMap& map, const Topology& topology,
                   const PruneOptions& options) {
  if (map.num_ranks() != topology.num_ranks())
    fail(ErrorCode::invalid_argument, "prune: the expert map is for {} ranks, the topology for {}", map.num_ranks(),
         topology.num_ranks());
  check_routing(routing, {"prune"});
  const std::size_t num_tokens = routing.num_tokens();
  if (num_scores != 0 && num_scores != num_tokens * static_cast<std::size_t>(map.num_experts()))
    fail(ErrorCode::invalid_argument, "prune: {} scores, expected {} tokens x {} experts, or none", num_scores,
         num_tokens, map.num_experts());
  if (options.limit < 1) fail(ErrorCode::invalid_argument, "prune: limit is {}, expected at least 1", options.limit);
  if (options.source.valid() && options.source.value >= map.num_ranks())
    fail(ErrorCode::invalid_argument, "prune: the source is rank {}, expected 0 to {}", options.source,
         map.num_ranks() - 1);
  if (options.level > PruneLevel::nodes)
    fail(ErrorCode::invalid_argument, "prune: level {} does not exist, expected ranks or nodes",
         static_cast<int>(options.level));
  if (options.renormalise > Renormalise::keep_sum)
    fail(ErrorCode::invalid_argument, "prune: renormalise {} does not exist, expected none or keep_sum",
         static_cast<int>(options.renormalise));
  if (options.similarity != nullptr && options.similarity->num_experts() != map.num_experts())
    fail(ErrorCode::invalid_argument, "prune: the similarity is of {} experts, the expert map has {}",
         options.similarity->num_experts(), map.num_experts());
}

PruneReport report_on(std::span<const PrunedToken> tokens) {
  double mass_before = 0, mass_after = 0;
  std::int64_t num_routed = 0, num_changed = 0, places_before = 0, places_after = 0;
  PruneReport report;
  for (const PrunedToken& token : tokens) {
    mass_before += double{token.mass_before};
    mass_after += double{token.mass_after};
    num_routed += token.places_before > 0 ? 1 : 0;
    num_changed += token.is_changed ? 1 : 0;
    places_before += token.places_before;
    places_after += token.places_after;
    report.num_dropped += token.num_dropped;
  }
  if (num_routed == 0) return report;
  // Weights may sum to zero where they stand in for scores; then the share is undefined.
  if (mass_before != 0) report.mass_kept = mass_after / mass_before;
  const auto per_token = [&](std::int64_t sum) { return static_cast<double>(sum) / static_cast<double>(num_routed); };
  report.share_changed = per_token(num_changed);
  report.c_t_before = per_token(places_before);
  report.c_t_after = per_token(places_after);
  return report;
}

PrunedRouting prune(const Routing& given, std::span<const float> scores, const ExpertMap& map, const Topology& topology,
                    const PruneOptions& options) {
  const NarrowRouting narrow(given, {"prune"});
  const Routing& routing = narrow.get();
  check_pruning(routing, scores.size(), map, topology, options);
  const PlaceWords places(map, topology, options.level);
  const bool needs_copies = options.source.valid() && map.has_replicas();
  const auto copies = needs_copies ? std::make_unique<CopyArrays>(map, topology) : nullptr;
  PrunedRouting pruned{.experts = std::vector<std::int32_t>(routing.experts.size()),
                       .weights = std::vector<float>(routing.experts.size()),
                       .topk = routing.topk,
                       .report = {}};
  const PruneArrays arrays{.experts = routing.experts.narrow().data(),
                           .weights = routing.weights.empty() ? nullptr : routing.weights.data(),
                           .scores = scores.empty() ? nullptr : scores.data(),
                           .similarity = options.similarity != nullptr ? options.similarity->values().data() : nullptr,
                           .places = places.at(places.words().data()),
                           .copies = copies ? copies_from(options, copies->tables(), topology) : CopiesFromSource{},
                           .topk = routing.topk,
                           .limit = options.limit,
                           .keeps_sum = options.renormalise == Renormalise::keep_sum,
                           .pruned_experts = pruned.experts.data(),
                           .pruned_weights = pruned.weights.data()};
  const auto num_experts = static_cast<std::size_t>(map.num_experts());
  std::vector<PrunedToken> tokens(routing.num_tokens());
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    if (!scores.empty()) check_scores(scores.subspan(token * num_experts, num_experts), token);
    TokenPruner pruner(arrays, static_cast<std::int64_t>(token));
    if (const auto fault = pruner.find_fault(); fault.kind != PruneFault::none) fail_entry(routing, map, token, fault);
    tokens[token] = pruner.prune();
  }
  pruned.report = report_on(tokens);
  return pruned;
}

namespace {

/// [experts, experts], upper triangle. Each sum adds in token order; the innermost loop runs over pairs of experts, so
/// that it vectorises without changing that order.
std::vector<double> dot_products(std::span<const float> scores, std::size_t num_experts) {
  std::vector<double> dots(num_experts * num_experts);
  std::vector<double> row(num_experts);
  for (std::size_t begin = 0; begin < scores.size(); begin += num_experts) {
    for (std::size_t expert = 0; expert < num_experts; ++expert) {
      const float score = scores[begin + expert];
      if (!std::isfinite(score))
        fail(ErrorCode::invalid_argument,
             "expert similarity: token {}: the score of expert {} is {}, expected a finite one", begin / num_experts,
             expert, score);
      row[expert] = double{score};
    }
    for (std::size_t a = 0; a < num_experts; ++a) {
      const double score = row[a];
      double* const sums = dots.data() + a * num_experts;
      for (std::size_t b = a; b < num_experts; ++b) sums[b] += score * row[b];
    }
  }
  return dots;
}

}  // namespace

ExpertSimilarity ExpertSimilarity::from_scores(std::span<const float> scores, std::int64_t num_tokens,
                                               std::int32_t num_experts) {
  if (num_experts < 1)
    fail(ErrorCode::invalid_argument, "expert similarity: num_experts is {}, expected at least 1", num_experts);
  const auto experts = static_cast<std::size_t>(num_experts);
  if (num_tokens < 0 || scores.size() != static_cast<std::size_t>(num_tokens) * experts)
    fail(ErrorCode::invalid_argument, "expert similarity: {} scores, expected {} tokens x {} experts", scores.size(),
         num_tokens, num_experts);
  const std::vector<double> dots = dot_products(scores, experts);
  ExpertSimilarity similarity;
  similarity.num_experts_ = num_experts;
  similarity.values_.resize(dots.size());
  for (std::size_t a = 0; a < experts; ++a)
    for (std::size_t b = a; b < experts; ++b) {
      const double norms = std::sqrt(dots[a * experts + a]) * std::sqrt(dots[b * experts + b]);
      const auto cosine = static_cast<float>(norms > 0 ? dots[a * experts + b] / norms : 0);
      similarity.values_[a * experts + b] = cosine;
      similarity.values_[b * experts + a] = cosine;
    }
  return similarity;
}

}  // namespace shunt
