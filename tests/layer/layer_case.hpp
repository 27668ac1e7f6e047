// Random layers that all implementations must compute alike: any map, routing and shape.
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
  std::vector<HostRows> gate_up{};         ///< the same, in the layers' format
  std::vector<HostRows> down{};
  std::vector<HostRows> x{};  ///< by rank

  /// The weights of the experts that the map assigns to the rank; copies of an expert share memory.
  [[nodiscard]] ExpertWeights weights_of(RankId rank) const;
  /// The reference's result for a token of a rank.
  [[nodiscard]] std::vector<float> expected(RankId rank, std::int64_t token) const;
  /// Distance of a token's result from it, relative to the magnitude of results.
  [[nodiscard]] double error_of(RankId rank, std::int64_t token, const ConstTensor& result) const;
};

/// Top-1 to top-8, drops, experts without rows, ranks without experts or tokens, replicas; hidden and ffn are
/// arbitrary. Equal arguments give equal cases.
LayerCase random_layer_case(std::uint64_t seed, const Topology& topology, DType dtype);

}  // namespace shunt::test
