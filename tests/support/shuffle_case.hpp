// A random case of all four operations: what every rank brings, which way it takes, and what must come out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/reference/case.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

/// Where a tensor lies, and how.
struct Way {
  enum class Spot : std::uint8_t {
    absent,     ///< of an output: the engine finds a place for it
    host,       ///< host memory that peers can't address; outputs of devices lie in `shifted` instead
    shifted,    ///< the engine's memory, aligned to elements and to no more
    allocated,  ///< as Engine::allocate gives it, or Engine::expert_out
  };
  Spot spot = Spot::allocated;
  bool is_strided = false;  ///< rows are apart; not of outputs of devices
};

struct Paths {
  Way x{};
  Way dispatch_out{};
  Way expert_out{};
  Way combine_out{};
  Way::Spot routing;  ///< not `absent`
  bool has_wide_ids = false;
  std::optional<std::int64_t> spare_rows{};  ///< the plan is bounded, by so many more than are needed, where it can be
  bool is_packed = false;                    ///< of `padded`
  bool has_rows_with_plan = false;           ///< of a bounded plan: dispatch delivers into rows that the plan was given
};

/// All vectors are [ranks].
struct ShuffleCase : ReferenceCase {
  std::uint64_t seed;
  RandomCase routing;
  EngineOptions options;  ///< as the engine is given them: some dtypes are left to their defaults
  Paths paths;

  /// One line for the message of a failure.
  [[nodiscard]] std::string describe() const;
};

/// Equal arguments give equal cases. Options are given so that several cases can share an engine, and must reduce by a
/// tree then; limits, for routings of other sizes.
ShuffleCase random_shuffle_case(std::uint64_t seed, const Topology& topology,
                                const std::optional<EngineOptions>& options = {},
                                const std::optional<CaseLimits>& limits = {});

/// Any options with a tree reduction.
EngineOptions random_engine_options(std::uint64_t seed);

/// The first random cases that suit; all do if that is not given. Their options follow from the seed.
std::vector<ShuffleCase> draw_cases(
    std::size_t count, const Topology& topology,
    const std::function<std::optional<EngineOptions>(std::uint64_t seed)>& options = [](auto) { return std::nullopt; },
    const std::optional<CaseLimits>& limits = {}, const std::function<bool(const ShuffleCase&)>& suits = {});

}  // namespace shunt::test
