// Synthetic and recorded routings.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>

#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt::cli {

/// Draws a token's experts; deterministic for a given random state.
class RoutingModel {
 public:
  virtual ~RoutingModel() = default;
  /// Fills `experts` with distinct experts for the given token of the given rank.
  virtual void draw(std::mt19937_64& random, std::int64_t rank, std::int64_t token,
                    std::span<std::int32_t> experts) const = 0;
};

/// `name`: uniform, zipf:A, node-local, bimodal, clustered:G or trace:FILE. Throws Error(invalid_argument) otherwise,
/// and for a trace that can't be read, with file and line.
std::unique_ptr<RoutingModel> make_routing_model(const std::string& name, const ExpertMap& map,
                                                 const Topology& topology, std::int32_t topk,
                                                 std::int64_t tokens_per_rank);

}  // namespace shunt::cli
