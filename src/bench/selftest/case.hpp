// What the self-test asks of an engine: small shuffles, each with what the reference says must come of it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/reference/case.hpp"
#include "shunt/engine.hpp"

namespace shunt::bench::selftest {

enum class Variant : std::uint8_t {
  plain,    ///< replicas, drops, weights; aligned where the layout can be
  odd,      ///< rows of odd size, a capacity, a rank without tokens, other dtypes for outputs, no weights, flat sums
  large,    ///< rows that fill several slices between nodes
  bounded,  ///< as plain, by a plan with a bound on rows
  packed,   ///< as plain, with padded rows at the front of each expert's block
};

std::string_view to_string(Variant variant);

/// Everything that tells one case from another: equal keys give equal cases.
struct CaseKey {
  Layout layout = Layout::expert_major;
  DType dtype = f32;
  Variant variant = Variant::plain;
  std::int32_t ranks = 1;
  std::int32_t nodes = 1;
  /// fp8 x comes with its scales; otherwise it is quantised on the way.
  bool has_fp8_x = false;

  auto operator<=>(const CaseKey&) const = default;
  /// "bf16, 4 ranks on 2 nodes, odd".
  [[nodiscard]] std::string describe() const;
};

struct RankRouting {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

/// All vectors are [ranks].
struct Case : ReferenceCase {
  CaseKey key;
  Topology topology;
  ExpertMap map;
  PlanOptions plan;
  EngineOptions engine;  ///< as the engine is given them: some dtypes are left to their defaults
  std::int32_t topk;
  std::vector<RankRouting> routings;

  [[nodiscard]] Routing routing(std::size_t rank) const {
    return {routings[rank].experts, routings[rank].weights, topk};
  }
};

/// More than any case has of each: for engines that reserve memory for the most there can be.
inline constexpr std::int64_t kMostTokens = 64;
inline constexpr std::int32_t kMostExperts = 1024;

[[nodiscard]] Case make_case(const CaseKey& key, std::uint64_t seed);

}  // namespace shunt::bench::selftest
