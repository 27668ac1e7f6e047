// A random case of all four operations: what every rank brings, which way it takes, and what must come out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/reference/shuffle.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

/// Where a tensor lies.
enum class Memory : std::uint8_t {
  absent,     ///< of an output: the engine finds a place for it
  plain,      ///< peers can't address it
  symmetric,  ///< World::allocate
};

struct Paths {
  Memory x;
  Memory dispatch_out;
  Memory expert_out;
  Memory combine_out;
};

/// All vectors are [ranks].
struct ShuffleCase {
  std::uint64_t seed;
  RandomCase routing;
  EngineOptions options;  ///< as the engine is given them: some dtypes are left to their defaults
  Paths paths;

  std::vector<HostRows> x{};
  std::vector<HostRows> scales{};  ///< of fp8 x, else empty
  std::vector<HostRows> expert_out{};
  std::vector<HostRows> grad_rows{};
  std::vector<HostRows> grad_out{};

  struct Expected {
    std::vector<PlanData> plans;
    std::vector<ReferenceRows> dispatch;
    std::vector<HostRows> combine;
    std::vector<HostRows> dispatch_backward;
    std::vector<ReferenceGradients> combine_backward;
  } expected{};

  /// One line for the message of a failure.
  [[nodiscard]] std::string describe() const;
};

/// Equal arguments give equal cases. Values have mixed magnitudes, so that the order of sums shows in their last bits.
ShuffleCase random_shuffle_case(std::uint64_t seed, const Topology& topology);

/// With these options, so that several cases can share an engine; their reduction must be a tree.
ShuffleCase random_shuffle_case(std::uint64_t seed, const Topology& topology, const EngineOptions& options);

/// With routings of other sizes too.
ShuffleCase random_shuffle_case(std::uint64_t seed, const Topology& topology, const EngineOptions& options,
                                const CaseLimits& limits);

/// Any options with a tree reduction.
EngineOptions random_engine_options(std::uint64_t seed);

}  // namespace shunt::test
