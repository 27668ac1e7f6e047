// Runs a case on an engine and compares every bit of its results with the reference.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bench/selftest/case.hpp"
#include "engine/supported.hpp"
#include "shunt/world.hpp"

namespace shunt::bench::selftest {

/// The memory that holds the rows of a rank's engine.
struct Place {
  EngineKind kind = EngineKind::host;
  std::optional<std::int32_t> device = std::nullopt;  ///< index of this rank's device
};

struct Hooks {
  /// For tests: called with the copy of each result before it is compared, and may change it. what: "dispatch: rows",
  /// "combine", …
  std::function<void(std::string_view what, RankId rank, const Tensor& copy)> tamper = nullptr;
};

struct Outcome {
  std::int32_t num_comparisons = 0;
  std::string difference = {};  ///< the first difference on this rank; empty: none
};

/// Collective: makes an engine for the case, makes the plan and runs every operation that the kind offers. Throws the
/// engine's Errors.
[[nodiscard]] Outcome check_case(World& world, const Case& test, const Place& place, std::chrono::milliseconds deadline,
                                 const Hooks& hooks = {});

}  // namespace shunt::bench::selftest
