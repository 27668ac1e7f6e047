#include "bench/selftest/case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/hash.hpp"

namespace shunt::bench::selftest {
namespace {

struct Shape {
  std::int64_t hidden;
  std::int32_t topk;
  std::int32_t tokens;
};

Shape shape_of(Variant variant) {
  switch (variant) {
    case Variant::odd: return {257, 6, 13};
    case Variant::large: return {2048, 4, 48};
    case Variant::plain:
    case Variant::bounded:
    case Variant::packed: return {128, 4, 18};
  }
  return {};
}

std::int32_t num_tokens_of(const CaseKey& key, std::int32_t rank) {
  if (key.variant == Variant::odd && rank == 0) return 0;
  return shape_of(key.variant).tokens + (key.variant == Variant::large ? 0 : 3 * (rank % 4));
}

std::int32_t num_experts_of(const CaseKey& key) { return std::max(3 * key.ranks + 1, 7); }

/// The first expert has a copy on every rank, the second one two copies; in odd cases the second of several ranks has
/// none but these.
ExpertMap map_of(const CaseKey& key) {
  std::vector<std::vector<ExpertId>> placement(static_cast<std::size_t>(key.ranks));
  ExpertMap::Shares shares(placement.size());
  for (std::int32_t expert = 0; expert < num_experts_of(key); ++expert)
    for (std::int32_t rank = 0; rank < key.ranks; ++rank) {
      std::int32_t home = expert % key.ranks;
      if (key.variant == Variant::odd && home == 1 && expert > 1) home = 0;
      const bool is_second_copy = expert == 1 && rank == key.ranks - 1;
      if (rank != home && expert != 0 && !is_second_copy) continue;
      placement[static_cast<std::size_t>(rank)].emplace_back(expert);
      shares[static_cast<std::size_t>(rank)].push_back(1 + rank % 3);
    }
  return ExpertMap::from_placement(num_experts_of(key), placement, shares);
}

RankRouting routing_of(const CaseKey& key, std::int32_t rank, Dice& dice) {
  const std::int32_t topk = shape_of(key.variant).topk;
  RankRouting routing;
  std::vector<std::int32_t> order(static_cast<std::size_t>(num_experts_of(key)));
  for (std::int32_t token = 0; token < num_tokens_of(key, rank); ++token) {
    std::iota(order.begin(), order.end(), 0);
    const bool is_dropped = dice.one_in(12);
    for (std::int32_t choice = 0; choice < topk; ++choice) {
      const auto i = static_cast<std::size_t>(choice);
      std::swap(order[i], order[static_cast<std::size_t>(dice.between(choice, num_experts_of(key) - 1))]);
      routing.experts.push_back(is_dropped || dice.one_in(8) ? -1 : order[i]);
      if (key.variant != Variant::odd) routing.weights.push_back(static_cast<float>(dice.between(-999, 1000)) / 512.0f);
    }
  }
  return routing;
}

PlanOptions plan_options_of(const CaseKey& key) {
  PlanOptions options{.layout = key.layout};
  if (key.layout == Layout::padded) {
    for (std::int32_t rank = 0; rank < key.ranks; ++rank)
      options.max_tokens = std::max<std::int64_t>(options.max_tokens, num_tokens_of(key, rank) + 2);
  } else if (key.variant == Variant::odd) {
    options.capacity = 9;
  } else if (key.variant != Variant::large) {
    options.alignment = 8;
  }
  return options;
}

EngineOptions engine_options_of(const CaseKey& key) {
  EngineOptions options{.hidden = shape_of(key.variant).hidden, .dtype = key.dtype};
  if (key.variant != Variant::odd) return options;
  options.expert_dtype = key.dtype == f16 ? bf16 : f32;
  options.result_dtype = key.dtype == f32 ? bf16 : f32;
  options.wire_dtype = f16;
  if (key.layout != Layout::token_unique) options.reduction = Reduction::flat;
  return options;
}

}  // namespace

std::string_view to_string(Variant variant) {
  switch (variant) {
    case Variant::plain: return "plain";
    case Variant::odd: return "odd sizes";
    case Variant::large: return "large rows";
    case Variant::bounded: return "bounded";
    case Variant::packed: return "packed";
  }
  return "unknown";
}

std::string CaseKey::describe() const {
  return fmt::format("{}, {} rank{} on {} node{}, {}", shunt::to_string(dtype), ranks, ranks == 1 ? "" : "s", nodes,
                     nodes == 1 ? "" : "s", to_string(variant));
}

Case make_case(const CaseKey& key, std::uint64_t seed) {
  std::mt19937_64 generator(Hasher().add(seed, key.layout, key.dtype, key.variant, key.ranks).value());
  Dice dice(generator);
  Case all{{},
           key,
           Topology::virtual_nodes(key.ranks, key.nodes),
           map_of(key),
           plan_options_of(key),
           engine_options_of(key),
           shape_of(key.variant).topk,
           {}};
  std::vector<Routing> routings;
  for (std::int32_t rank = 0; rank < key.ranks; ++rank) all.routings.push_back(routing_of(key, rank, dice));
  for (std::size_t rank = 0; rank < all.routings.size(); ++rank) routings.push_back(all.routing(rank));
  const DType x_dtype = key.dtype != fp8_e4m3 || key.has_fp8_x ? key.dtype : bf16;
  all.draw(ReferenceShuffle(routings, all.map, all.topology, all.plan, all.engine), x_dtype, dice);
  if (key.variant == Variant::packed) {  // the reference knows padded rows only
    const auto block_rows = static_cast<std::size_t>(all.plan.max_tokens) * all.routings.size();
    for (std::size_t rank = 0; rank < all.routings.size(); ++rank)
      pack(all.expected.dispatch[rank], all.expert_out[rank], block_rows);
    all.plan.packed = true;
  }
  if (key.variant == Variant::bounded) {
    for (const PlanData& plan : all.expected.plans) all.plan.max_rows = std::max(all.plan.max_rows, plan.num_rows());
    all.plan.max_rows += 3;
  }
  return all;
}

}  // namespace shunt::bench::selftest
