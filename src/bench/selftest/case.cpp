#include "bench/selftest/case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/hash.hpp"

namespace shunt::bench::selftest {
namespace {

/// Not the standard distributions, which may differ between libraries.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : generator_(seed) {}

  std::int32_t between(std::int32_t least, std::int32_t most) {
    return least + static_cast<std::int32_t>(generator_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int32_t n) { return between(1, n) == 1; }

  /// Of mixed magnitudes, so that the order of sums shows in their last bits; sums of them stay finite in f16.
  float value() {
    if (one_in(30)) return one_in(2) ? 0.0f : -0.0f;
    const float magnitude = std::ldexp(1.0f + static_cast<float>(between(0, (1 << 23) - 1)) * 0x1p-23f, between(-8, 5));
    return one_in(2) ? magnitude : -magnitude;
  }

 private:
  std::mt19937_64 generator_;
};

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

HostRows random_rows(Dice& dice, DType dtype, std::int64_t rows, std::int64_t cols) {
  HostRows matrix(dtype, rows, cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool is_zero = dice.one_in(20);  // fp8 has a rule for blocks without a largest value
    for (std::int64_t col = 0; col < cols && !is_zero; ++col)
      if (dtype == fp8_e4m3)
        matrix.set_bits(row, col, static_cast<std::uint8_t>(dice.between(0, 255)));
      else
        matrix.set(row, col, dice.value());
  }
  return matrix;
}

void fill(Case& all, Dice& dice) {
  std::vector<Routing> routings;
  for (std::size_t rank = 0; rank < all.routings.size(); ++rank) routings.push_back(all.routing(rank));
  const ReferenceShuffle reference(routings, all.map, all.topology, all.plan, all.engine);
  const EngineOptions& options = reference.options();
  const bool has_fp8_x = all.key.dtype == fp8_e4m3 && all.key.has_fp8_x;
  const DType x_dtype = all.key.dtype != fp8_e4m3 || has_fp8_x ? all.key.dtype : bf16;
  const auto blocks = static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(options.hidden)));
  for (const PlanData& plan : reference.plans()) {
    all.x.push_back(random_rows(dice, x_dtype, plan.num_tokens, options.hidden));
    all.scales.push_back(has_fp8_x ? random_rows(dice, f32, plan.num_tokens, blocks) : HostRows());
    all.expert_out.push_back(random_rows(dice, *options.expert_dtype, plan.num_rows(), options.hidden));
    all.grad_rows.push_back(random_rows(dice, *options.expert_dtype, plan.num_rows(), options.hidden));
    all.grad_out.push_back(random_rows(dice, *options.result_dtype, plan.num_tokens, options.hidden));
  }
  all.expected = {.plans = reference.plans(),
                  .dispatch = reference.dispatch(all.x, all.scales),
                  .combine = reference.combine(all.expert_out),
                  .dispatch_backward = reference.dispatch_backward(all.grad_rows),
                  .combine_backward = reference.combine_backward(all.grad_out, all.expert_out)};
}

/// Where a padded row stands once it is packed; rows that are not defined stay behind. block: rows of an expert.
std::vector<std::size_t> packed_places(const std::vector<bool>& defined, std::size_t block) {
  std::vector<std::size_t> places(defined.size());
  for (std::size_t begin = 0; begin < defined.size(); begin += block) {
    std::size_t next = begin;
    for (const bool wanted : {true, false})
      for (std::size_t row = begin; row < begin + block; ++row)
        if (defined[row] == wanted) places[row] = next++;
  }
  return places;
}

void move_rows(HostRows& rows, const std::vector<std::size_t>& places) {
  const HostRows before = rows;
  for (std::int64_t row = 0; row < rows.rows(); ++row)
    rows.copy_row(static_cast<std::int64_t>(places[static_cast<std::size_t>(row)]), before, row);
}

template <class T>
void move_values(std::vector<T>& values, const std::vector<std::size_t>& places) {
  const std::vector<T> before = values;
  for (std::size_t i = 0; i < values.size(); ++i) values[places[i]] = before[i];
}

/// The reference knows padded rows only.
void pack(Case& all) {
  const auto block = static_cast<std::size_t>(all.plan.max_tokens) * all.routings.size();
  for (std::size_t rank = 0; rank < all.routings.size(); ++rank) {
    ReferenceRows& rows = all.expected.dispatch[rank];
    const auto places = packed_places(rows.defined, block);
    move_rows(rows.rows, places);
    move_rows(rows.scales, places);
    move_values(rows.origins, places);
    move_values(rows.weights, places);
    move_values(rows.defined, places);
    move_rows(all.expert_out[rank], places);
  }
  all.plan.packed = true;
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
  Dice dice(Hasher()
                .add(seed)
                .add(static_cast<std::uint64_t>(key.layout))
                .add(static_cast<std::uint64_t>(key.dtype))
                .add(static_cast<std::uint64_t>(key.variant))
                .add(static_cast<std::uint64_t>(key.ranks))
                .value());
  Case all{.key = key,
           .topology = Topology::virtual_nodes(key.ranks, key.nodes),
           .map = map_of(key),
           .plan = plan_options_of(key),
           .engine = engine_options_of(key),
           .topk = shape_of(key.variant).topk,
           .routings = {}};
  for (std::int32_t rank = 0; rank < key.ranks; ++rank) all.routings.push_back(routing_of(key, rank, dice));
  fill(all, dice);
  if (key.variant == Variant::packed) pack(all);
  if (key.variant == Variant::bounded) {
    for (const PlanData& plan : all.expected.plans) all.plan.max_rows = std::max(all.plan.max_rows, plan.num_rows());
    all.plan.max_rows += 3;
  }
  return all;
}

}  // namespace shunt::bench::selftest
