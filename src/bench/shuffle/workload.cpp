#include "bench/shuffle/workload.hpp"

#include <algorithm>
#include <random>
#include <set>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "shunt/copy_choice.hpp"
#include "shunt/float_formats.hpp"

namespace shunt::bench {
namespace {

bool all_tokens_have_scores(const ShuffleConfig& config, const RoutingModel& model) {
  if (!model.has_scores()) return false;
  for (std::int64_t rank = 0; rank < config.ranks; ++rank)
    for (std::int64_t token = 0; token < config.tokens; ++token)
      if (!model.has_scores(rank, token)) return false;
  return true;
}

/// The probability mass of a routing, which mass_kept is relative to.
double mass_of(const RankRouting& routing, std::span<const float> scores, std::size_t num_experts, std::size_t topk) {
  double mass = 0;
  for (std::size_t entry = 0; entry < routing.experts.size(); ++entry) {
    if (routing.experts[entry] < 0) continue;
    const auto expert = static_cast<std::size_t>(routing.experts[entry]);
    mass += static_cast<double>(scores.empty() ? routing.weights[entry] : scores[entry / topk * num_experts + expert]);
  }
  return mass;
}

RankRouting draw_routing(const ShuffleConfig& config, const RoutingModel& model, std::int64_t rank) {
  std::mt19937_64 random(config.seed * 1'000'003 + static_cast<std::uint64_t>(rank));
  std::uniform_real_distribution<float> score(0.1f, 1.0f);
  const auto topk = static_cast<std::size_t>(config.topk);
  RankRouting routing;
  routing.experts.resize(static_cast<std::size_t>(config.tokens) * topk);
  routing.weights.resize(routing.experts.size());
  for (std::size_t token = 0; token < static_cast<std::size_t>(config.tokens); ++token) {
    model.draw(random, rank, static_cast<std::int64_t>(token), std::span(routing.experts).subspan(token * topk, topk));
    const auto weights = std::span(routing.weights).subspan(token * topk, topk);
    if (model.read_weights(rank, static_cast<std::int64_t>(token), weights)) continue;
    float sum = 0;
    for (float& weight : weights) sum += weight = score(random);
    for (float& weight : weights) weight /= sum;
  }
  return routing;
}

/// Prunes every rank's routing according to config.prune, without choosing copies anew. Uses router scores of all
/// experts if the model has them for every token, otherwise weights. Leaves PruningFigures::before empty.
PruningFigures prune_routings(const ShuffleConfig& config, const RoutingModel& model, const ExpertMap& map,
                              std::vector<RankRouting>& routings) {
  const auto topk = static_cast<std::size_t>(config.topk);
  const TokenPruning pruning(config, model);
  PruningFigures figures;
  figures.has_scores = pruning.has_scores();
  double mass_before = 0, mass_after = 0, num_changed = 0;
  std::int64_t num_routed = 0;
  for (std::size_t rank = 0; rank < routings.size(); ++rank) {
    RankRouting& routing = routings[rank];
    const std::vector<float> scores = pruning.scores(RankId(rank));
    const double mass = mass_of(routing, scores, static_cast<std::size_t>(config.experts), topk);
    std::int64_t routed = 0;
    for (std::size_t first = 0; first < routing.experts.size(); first += topk) {
      const auto experts = std::span(routing.experts).subspan(first, topk);
      routed += std::any_of(experts.begin(), experts.end(), [](std::int32_t expert) { return expert >= 0; }) ? 1 : 0;
    }
    PrunedRouting pruned =
        prune(routing.view(config.topk), scores, map, config.topology(), pruning.options(RankId(rank)));
    mass_before += mass;
    mass_after += mass * pruned.report.mass_kept;
    num_changed += static_cast<double>(routed) * pruned.report.share_changed;
    num_routed += routed;
    figures.num_dropped += pruned.report.num_dropped;
    routing.experts = std::move(pruned.experts);
    routing.weights = std::move(pruned.weights);
  }
  if (mass_before > 0) figures.mass_kept = mass_after / mass_before;
  if (num_routed > 0) figures.share_changed = num_changed / static_cast<double>(num_routed);
  return figures;
}

}  // namespace

TokenPruning::TokenPruning(const ShuffleConfig& config, const RoutingModel& model)
    : config_(config),
      model_(model),
      similarity_(config.prune.by == "similarity" ? model.similarity() : std::nullopt),
      has_scores_(all_tokens_have_scores(config, model)) {}

PruneOptions TokenPruning::options(RankId source) const {
  return {.limit = *config_.prune.limit,
          .level = config_.prune.level == "nodes" ? PruneLevel::nodes : PruneLevel::ranks,
          .similarity = similarity_ ? &*similarity_ : nullptr,
          .source = source};
}

std::vector<float> TokenPruning::scores(RankId rank) const {
  if (!has_scores_) return {};
  const auto num_experts = static_cast<std::size_t>(config_.experts);
  std::vector<float> scores(static_cast<std::size_t>(config_.tokens) * num_experts);
  for (std::int64_t token = 0; token < config_.tokens; ++token)
    model_.read_scores(rank.value, token,
                       std::span(scores).subspan(static_cast<std::size_t>(token) * num_experts, num_experts));
  return scores;
}

Workload::Workload(const ShuffleConfig& config)
    : config_(config), model_(make_routing_model(config)), map_(config.map()) {
  for (std::int32_t rank = 0; rank < config.ranks; ++rank) routing_.push_back(draw_routing(config, *model_, rank));
  apply_map();
}

Workload Workload::with_map(const ExpertMap& map, const PruneRequest& prune) const {
  SHUNT_CHECK(!pruning_);
  Workload other = *this;
  other.config_.prune = prune;
  other.map_ = map;
  other.apply_map();
  return other;
}

void Workload::apply_map() {
  choose_copies();
  figures_ = count_figures();
  if (!config_.prune.limit) return;
  unpruned_ = routing_;
  pruning_ = prune_routings(config_, *model_, map_, routing_);
  pruning_->before = figures_;
  choose_copies();
  figures_ = count_figures();
}

void Workload::choose_copies() {
  const auto topk = static_cast<std::size_t>(config_.topk);
  const CopyChoice choice(map_, config_.topology());
  for (std::size_t rank = 0; rank < routing_.size(); ++rank) {
    RankRouting& routing = routing_[rank];
    routing.copies.resize(routing.experts.size());
    for (std::size_t first = 0; first < routing.experts.size(); first += topk)
      choice.choose(RankId(rank), std::span(routing.experts).subspan(first, topk),
                    std::span(routing.copies).subspan(first, topk));
  }
}

RoutingFigures Workload::count_figures() const {
  const Topology topology = config_.topology();
  std::int64_t num_tokens = 0, num_ranks = 0, num_nodes = 0, num_rows = 0;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(config_.ranks));
  std::set<RankId> ranks;
  std::set<NodeId> nodes;
  for (const RankRouting& routing : routing_) {
    for (std::size_t entry = 0; entry < routing.copies.size(); ++entry) {
      if (const PhysicalId copy = routing.copies[entry]; copy.valid()) {
        ranks.insert(map_.rank(copy));
        nodes.insert(topology.node(map_.rank(copy)));
        ++rows[map_.rank(copy).index()];
        ++num_rows;
      }
      if ((entry + 1) % static_cast<std::size_t>(config_.topk) != 0) continue;
      num_tokens += ranks.empty() ? 0 : 1;
      num_ranks += static_cast<std::int64_t>(ranks.size());
      num_nodes += static_cast<std::int64_t>(nodes.size());
      ranks.clear();
      nodes.clear();
    }
  }
  if (num_tokens == 0) return {};
  const auto per = [](std::int64_t sum, std::int64_t count) {
    return static_cast<double>(sum) / static_cast<double>(count);
  };
  return {.c_t = per(num_ranks, num_tokens),
          .c_t_node = per(num_nodes, num_tokens),
          .load = per(*std::max_element(rows.begin(), rows.end()) * config_.ranks, num_rows)};
}

void Workload::fill_row(std::size_t rank, std::int64_t token, std::byte* row) const {
  std::uint64_t state = Hasher().add(config_.seed, rank, token).value();
  const auto next = [&state] {  // xorshift64; values in ±2 with 10 significant bits, exact in bf16 only after rounding
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<float>(static_cast<int>(state & 0x7ff) - 1024) * 0x1p-9f;
  };
  const auto hidden = static_cast<std::size_t>(config_.hidden);
  switch (token_dtype()) {
    case DType::f32:
      for (std::size_t i = 0; i < hidden; ++i) reinterpret_cast<float*>(row)[i] = next();
      break;
    case DType::f16:
      for (std::size_t i = 0; i < hidden; ++i) reinterpret_cast<std::uint16_t*>(row)[i] = f16_from_f32(next());
      break;
    case DType::bf16:
    case DType::fp8_e4m3:
      for (std::size_t i = 0; i < hidden; ++i) reinterpret_cast<std::uint16_t*>(row)[i] = bf16_from_f32(next());
      break;
  }
}

template <class Row>
void Workload::for_each_row(bool once_per_rank, const Row& row) const {
  for (std::size_t source = 0; source < routing_.size(); ++source) {
    const std::vector<PhysicalId>& copies = routing_[source].copies;
    std::set<RankId> reached;
    for (std::size_t entry = 0; entry < copies.size(); ++entry) {
      if (entry % static_cast<std::size_t>(config_.topk) == 0) reached.clear();
      if (!copies[entry].valid()) continue;
      const RankId rank = map_.rank(copies[entry]);
      if (reached.insert(rank).second || !once_per_rank) row(RankId(source), rank);
    }
  }
}

Workload::RowCounts Workload::count_rows(bool once_per_rank) const {
  const Topology topology = config_.topology();
  RowCounts counts;
  for_each_row(once_per_rank, [&](RankId source, RankId rank) {
    ++counts.delivered;
    counts.between_ranks += rank != source ? 1 : 0;
    counts.between_nodes += topology.node(rank) != topology.node(source) ? 1 : 0;
  });
  return counts;
}

std::int64_t Workload::most_rows_of_a_rank(bool once_per_rank) const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(config_.ranks));
  for_each_row(once_per_rank, [&](RankId, RankId rank) { ++rows[rank.index()]; });
  return *std::max_element(rows.begin(), rows.end());
}

Tensor Workload::tokens(std::size_t rank) const {
  Tensor tensor{nullptr, token_dtype(), config_.tokens, config_.hidden, nullptr};
  auto memory = std::make_shared<std::vector<std::byte>>(tensor.bytes() + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(memory->data());
  tensor.data = memory->data() + (64 - address % 64) % 64;
  tensor.owner = memory;
  for (std::int64_t token = 0; token < config_.tokens; ++token) fill_row(rank, token, tensor.row(token));
  return tensor;
}

}  // namespace shunt::bench
