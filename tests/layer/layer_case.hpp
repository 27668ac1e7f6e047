// Random layers that all ways must compute alike: any map, routing and shape.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/reference/expert.hpp"
#include "bench/reference/rows.hpp"
#include "layer/experts.hpp"
#include "shunt/topology.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

struct LayerCase {
  std::uint64_t seed;
  RandomCase routing;
  DType dtype;
  std::int64_t hidden;
  std::int64_t ffn;
  std::vector<ReferenceExpert> experts{};  ///< by logical expert
  std::vector<HostRows> gate_up{};         ///< the same, as layers take them
  std::vector<HostRows> down{};
  std::vector<HostRows> x{};  ///< by rank

  /// Of the experts that the map gives the rank; copies of an expert share memory.
  [[nodiscard]] ExpertWeights weights_of(RankId rank) const;
  /// What the reference makes of a rank's token.
  [[nodiscard]] std::vector<float> expected(RankId rank, std::int64_t token) const;
  /// How far a token's result is from it, relative to the size that results have.
  [[nodiscard]] double error_of(RankId rank, std::int64_t token, const ConstTensor& result) const;
};

/// Top-1 to top-8, drops, experts without rows, ranks without experts or tokens, replicas; hidden and ffn are multiples
/// of nothing. Equal arguments give equal cases.
LayerCase random_layer_case(std::uint64_t seed, const Topology& topology, DType dtype);

}  // namespace shunt::test
