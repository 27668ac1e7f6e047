// Random experts that every rank can compute.
#pragma once

#include <cstdint>
#include <map>

#include "bench/layer/config.hpp"
#include "bench/reference/expert.hpp"
#include "layer/aligned_buffer.hpp"
#include "layer/experts.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::bench {

/// Random matrices as a pure function of the seed and the logical expert, so that copies are equal and every rank can
/// check results. They are scaled so that products keep the magnitude of elements.
class RandomExperts {
 public:
  explicit RandomExperts(const LayerConfig& config) : config_(config) {}

  /// The rank's experts under the map. Matrices are owned by this object and made once for all maps.
  ExpertWeights of_rank(const ExpertMap& map, RankId rank);
  ExpertMatrices of_expert(std::int32_t expert);
  /// Not cached.
  [[nodiscard]] ReferenceExpert reference(std::int32_t expert) const;

 private:
  struct Matrices {
    AlignedBuffer gate_up;
    AlignedBuffer down;
  };

  [[nodiscard]] Matrices make(std::int32_t expert) const;
  [[nodiscard]] AlignedBuffer make(std::int32_t expert, std::uint64_t which, std::int64_t outputs,
                                   std::int64_t inputs) const;

  const LayerConfig& config_;
  std::map<std::int32_t, Matrices> matrices_;  // by logical expert
};

}  // namespace shunt::bench
