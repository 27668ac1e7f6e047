// Collaboration pruning (Occult, arXiv 2505.13345): a routing in which no token uses more than d ranks, or d nodes.
// docs/concepts/pruning.md defines every choice, tie and sum; CPUs and GPUs give the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/stream.hpp"
#include "shunt/tensor.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Similarity of experts: the cosine of the router's scores for them over a calibration set.
class ExpertSimilarity {
 public:
  /// scores: [tokens, num_experts], finite; tokens may be 0. Sums are in double, by ascending token, and rounded once
  /// to f32, so equal scores give equal tables on every machine. An expert whose scores are all 0 has similarity 0 to
  /// all. Throws Error(invalid_argument) for sizes that do not match and for scores that are not finite.
  static ExpertSimilarity from_scores(std::span<const float> scores, std::int64_t num_tokens, std::int32_t num_experts);

  [[nodiscard]] std::int32_t num_experts() const { return num_experts_; }
  [[nodiscard]] float at(ExpertId a, ExpertId b) const {
    return values_[a.index() * static_cast<std::size_t>(num_experts_) + b.index()];
  }
  /// [experts, experts], symmetric.
  [[nodiscard]] std::span<const float> values() const { return values_; }

 private:
  ExpertSimilarity() = default;

  std::int32_t num_experts_ = 0;
  std::vector<float> values_;
};

/// What the limit counts.
enum class PruneLevel : std::uint8_t { ranks, nodes };

/// What happens to a token's weights after experts were replaced or dropped.
enum class Renormalise : std::uint8_t {
  /// Weights stay as the router gave them, and the token's sum shrinks: for routers that use raw probabilities.
  none,
  /// The token's weights are scaled to their previous sum: for routers that normalise the weights of their top-k.
  keep_sum,
};

struct PruneOptions {
  /// Upper bound on the ranks (or nodes) of a token, at least 1. A limit of topk, or of the number of ranks, changes
  /// nothing.
  std::int32_t limit = 2;
  PruneLevel level = PruneLevel::ranks;
  /// Null: experts out of range are replaced by the best-scored experts in range; else each is replaced by the most
  /// similar one in range. Read during the call only.
  const ExpertSimilarity* similarity = nullptr;
  Renormalise renormalise = Renormalise::none;
  /// The rank whose tokens these are. Plans use it to choose among copies of experts, so with replicas the limit holds
  /// for what a plan sends only if this is set. If it is −1, an expert counts at any of its copies. Makes no difference
  /// without replicas.
  RankId source{};
};

/// Means over the tokens that have an expert. Without such tokens, nothing is changed and all mass is kept.
struct PruneReport {
  /// Sum of the scores of the experts that tokens have after pruning, over that before. Without scores, an expert's
  /// weight is its score, and the score of a replacement is 0.
  double mass_kept = 1;
  /// Share of the tokens whose experts were changed.
  double share_changed = 0;
  /// C_T by rank or node, according to the level. With replicas but without a source: counts the ranks that the walk
  /// over the token's experts admits, not those of the copies that a plan chooses.
  double c_t_before = 0;
  double c_t_after = 0;
  /// Experts out of range for which there was no replacement.
  std::int64_t num_dropped = 0;
};

/// Owns its arrays.
struct PrunedRouting {
  /// [tokens, topk]. An expert that is kept stays at its index; a replacement is at the index of a removed
  /// expert. −1 = dropped, before or by pruning.
  std::vector<std::int32_t> experts;
  /// [tokens, topk]; 1 if the routing had no weights, 0 where pruning has dropped an expert.
  std::vector<float> weights;
  std::int32_t topk = 1;
  PruneReport report;

  /// A view, valid as long as this object.
  [[nodiscard]] Routing routing() const { return {experts, weights, topk}; }
};

/// For each token, visits its experts by descending score (equal scores: by ascending expert) and admits the rank of
/// each until `limit` ranks are admitted. Experts with a copy on an admitted rank are in range and are kept. Those out
/// of range are replaced, or dropped if no replacement is left. Tokens whose experts are all in range keep their bits.
/// With replicas and a source, if the copies that a plan chooses for a token would still be on more ranks, its experts
/// with the lowest scores are dropped until they are not.
///
/// scores: [tokens, experts of the map], finite and not negative, the router's scores before its choice. Empty: weights
/// are used as scores and, without a similarity, experts out of range are dropped. Local: no other rank takes part.
/// Throws Error(invalid_argument) that names the token or the sizes, and the cause.
PrunedRouting prune(const Routing& routing, std::span<const float> scores, const ExpertMap& map,
                    const Topology& topology, const PruneOptions& options);

/// Prunes on a device, with the bits of prune(). Serves one map and one set of options, whose tables it keeps on the
/// device.
class Pruner {
 public:
  struct Impl;

  /// memory: a device's, such as Engine::memory(). options.similarity is read during the call only. Construction
  /// allocates memory and loads a kernel; both it and destruction may wait for the device, so neither is allowed while
  /// ranks wait for each other there. Throws Error(invalid_argument) as prune() does, and Error(unsupported) for host
  /// memory and if there is no device.
  Pruner(const ExpertMap& map, const Topology& topology, const PruneOptions& options, std::int64_t max_tokens,
         Memory memory);

  /// Puts the work on the stream; the host does not wait, and a CUDA graph may hold the work. All arrays are in the
  /// memory of that device:
  /// - the routing, with 32-bit experts, else Error(unsupported),
  /// - scores: [tokens, experts of the map], or null,
  /// - experts and weights: [tokens, topk] outputs, which must not overlap the routing.
  ///
  /// A token that prune() would refuse passes unchanged: the plan reports experts that do not exist or are named twice.
  /// Scores that are not finite are never chosen. One call at a time, and no call while a graph that holds one is
  /// replayed.
  void prune(const Routing& routing, const float* scores, std::int32_t* experts, float* weights, Stream stream);

  /// The report of the last prune() on this stream. The host waits for it.
  [[nodiscard]] PruneReport report(Stream stream) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
