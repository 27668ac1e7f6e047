// The parameters that all ranks must agree on to plan together.
#pragma once

#include <cstdint>

#include "plan/planner.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Sent in every proposal without conversion: all fields have one size, so there are no padding bytes.
struct Agreement {
  std::uint64_t hidden;
  std::uint64_t dtype;
  std::uint64_t expert_dtype;
  std::uint64_t result_dtype;
  std::uint64_t wire_dtype;
  std::uint64_t flat;
  std::uint64_t ids;
  std::uint64_t weights;
  std::uint64_t topk;
  std::uint64_t layout;
  std::uint64_t alignment;
  std::uint64_t capacity;
  std::uint64_t max_tokens;
  std::uint64_t packed;
  std::uint64_t forwarders;
  std::uint64_t num_experts;
  std::uint64_t map;       ///< ExpertMap::hash()
  std::uint64_t topology;  ///< Topology::hash()
};

Agreement make_agreement(const EngineShape& shape, std::int32_t topk, const PlanOptions& options, const ExpertMap& map,
                         const Topology& topology);

/// Throws PeerError that names both ranks and the first field that differs.
void check_agreement(const Agreement& theirs, RankId peer, const Agreement& ours, RankId self);

std::uint64_t hash_of(const Agreement& agreement);

}  // namespace shunt
