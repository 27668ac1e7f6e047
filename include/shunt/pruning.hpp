// Collaboration pruning (Occult, arXiv 2505.13345): a routing in which no token uses more than d ranks, or d nodes.
// docs/concepts/pruning.md defines every choice, tie and sum; hosts and devices give the same bits.
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

/// How alike experts are to the router: the cosine of the scores that it gave them over a calibration set.
class ExpertSimilarity {
 public:
  /// scores: [tokens, num_experts], finite; tokens may be 0. Sums in double, by ascending token, rounded once to f32,
  /// so that equal scores give equal tables on every machine. An expert whose scores are all 0 has similarity 0 to all.
  /// Throws Error(invalid_argument) for sizes that do not match and for scores that are not finite.
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

/// What becomes of a token's weights once experts have been replaced or dropped.
enum class Renormalise : std::uint8_t {
  /// A weight stays what it was for the router, and the token's sum shrinks: for routers that use raw probabilities.
  none,
  /// The token's weights are scaled to the sum that they had: for routers that normalise the weights of their top-k.
  keep_sum,
};

struct PruneOptions {
  /// Most ranks (or nodes) that a token uses, at least 1. At topk or at the number of ranks nothing changes.
  std::int32_t limit = 2;
  PruneLevel level = PruneLevel::ranks;
  /// Null: experts out of range give way to the best-scored ones in range. Else each is replaced by the one in range
  /// that is most similar. Read during the call only.
  const ExpertSimilarity* similarity = nullptr;
  Renormalise renormalise = Renormalise::none;
  /// The rank whose tokens these are. Plans choose copies of experts by it, so only with it the limit holds for what a
  /// plan of a map with replicas sends. Without it an expert counts at any of its copies. Makes no difference without
  /// replicas.
  RankId source{};
};

/// Means are over tokens that have an expert; without such tokens, nothing is changed and all mass is kept.
struct PruneReport {
  /// Sum of the scores of the experts that tokens have now, over the sum of those that they had. Without scores an
  /// expert's weight counts as its score, and an expert that replaces another counts as 0.
  double mass_kept = 1;
  double share_changed = 0;
  /// C_T by rank or node, as the level says. With replicas but without a source: the ranks that the walk over the
  /// token's experts admits, not those of the copies that a plan chooses.
  double c_t_before = 0;
  double c_t_after = 0;
  /// Experts that were out of range and for which no other was found.
  std::int64_t num_dropped = 0;
};

/// Owns its arrays.
struct PrunedRouting {
  /// [tokens, topk]. An expert that is kept stays where it was; a replacement stands where one was removed. −1:
  /// dropped, now or before.
  std::vector<std::int32_t> experts;
  /// [tokens, topk]; 1 where the routing had no weights, 0 where pruning has dropped an expert.
  std::vector<float> weights;
  std::int32_t topk = 1;
  PruneReport report;

  /// A view; valid as long as this object is.
  [[nodiscard]] Routing routing() const { return {experts, weights, topk}; }
};

/// Per token: walks its experts by descending score (equal scores: by ascending expert) and admits the rank of each
/// until `limit` are in; experts with a copy on an admitted rank are in range and stay. Those out of range are
/// replaced, or dropped where none is left to replace them. Tokens whose experts are all in range come out bit for bit
/// as they were. With replicas and a source, experts are then dropped, least score first, from tokens whose copies, as
/// a plan chooses them, would still be on more ranks.
///
/// scores: [tokens, experts of the map], finite and not negative, as the router made them before it chose; or empty:
/// then weights count as scores and, without a similarity, what is out of range is dropped. Local: no other rank takes
/// part. Throws Error(invalid_argument) that names the token or the sizes, and the cause.
PrunedRouting prune(const Routing& routing, std::span<const float> scores, const ExpertMap& map,
                    const Topology& topology, const PruneOptions& options);

/// Prunes on a device, with the bits that prune() gives. For one map and one set of options, whose tables it keeps
/// there.
class Pruner {
 public:
  struct Impl;

  /// memory: of a device, such as Engine::memory(). options.similarity is read during the call only. Allocates memory
  /// and loads a kernel, which may wait for the device, as destroying it may: not while ranks wait for each other
  /// there. Throws Error(invalid_argument) for what prune() refuses, too, and Error(unsupported) for host memory and
  /// where there is no device.
  Pruner(const ExpertMap& map, const Topology& topology, const PruneOptions& options, std::int64_t max_tokens,
         Memory memory);

  /// Puts the work on the stream; the host waits for nothing, and a CUDA graph may hold it. In the memory of that
  /// device: the routing, of experts of 32 bits, else Error(unsupported); scores, [tokens, experts of the map] or null;
  /// experts and weights, [tokens, topk], which must not overlap the routing. A token that prune() would refuse passes
  /// as it is: of an expert that does not exist, or is named twice, the plan will complain. Scores that are not finite
  /// are never chosen. Calls one at a time, and no call while a graph that holds one is replayed.
  void prune(const Routing& routing, const float* scores, std::int32_t* experts, float* weights, Stream stream);

  /// Of the tokens that were pruned last, on this stream. The host waits for it.
  [[nodiscard]] PruneReport report(Stream stream) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
