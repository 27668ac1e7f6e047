// Which random cases a test runs. SHUNT_TEST_SEED=n runs case n alone; SHUNT_TEST_PERCENT=n runs that share of the
// cases, for builds that are slow.
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/topology.hpp"

namespace shunt::test {

/// Cases that can share a world: all have the topology that follows from their seeds.
struct SeedsOfWorld {
  Topology topology;
  std::vector<std::uint64_t> seeds;
};

/// At least `num_cases` cases (or as the environment says) from world `first_world` on. A seed belongs to one world.
std::vector<SeedsOfWorld> choose_seeds(std::uint64_t first_world, std::uint64_t num_cases);

/// As many of a number of cases, or of repeats, as SHUNT_TEST_PERCENT says.
std::uint64_t share_of_cases(std::uint64_t count);

/// The topology of a case, whichever test runs it.
Topology topology_of(std::uint64_t seed);

}  // namespace shunt::test
