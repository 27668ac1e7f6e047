// Weights that any rank can make for any expert.
#pragma once

#include <cstdint>
#include <map>

#include "bench/layer/config.hpp"
#include "bench/reference/expert.hpp"
#include "layer/aligned_buffer.hpp"
#include "layer/experts.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::bench {

/// Random matrices as a pure function of the seed and the logical expert, so that copies are equal and results can be
/// checked anywhere. So large that elements keep their size from product to product.
class RandomExperts {
 public:
  explicit RandomExperts(const LayerConfig& config) : config_(config) {}

  /// Of the rank's experts under the map. Matrices live as long as this, and are made once for all maps.
  ExpertWeights of_rank(const ExpertMap& map, RankId rank);
  ExpertMatrices of_expert(std::int32_t expert);
  /// Made anew; not kept.
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
