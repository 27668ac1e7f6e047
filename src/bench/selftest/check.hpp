// Carries a case out on an engine and compares every bit of what comes of it with the reference.
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

/// Where an engine's rows are.
struct Place {
  EngineKind kind = EngineKind::host;
  std::optional<std::int32_t> device = std::nullopt;  ///< this rank's
};

struct Hooks {
  /// For tests: may change the copy of a result before it is compared. what: "dispatch: rows", "combine", …
  std::function<void(std::string_view what, RankId rank, const Tensor& copy)> tamper = nullptr;
};

struct Outcome {
  std::int32_t num_comparisons = 0;
  std::string difference = {};  ///< the first one on this rank; empty: none
};

/// Collective: makes an engine for the case, plans and carries out every operation that the kind offers. Throws what
/// the engine throws.
[[nodiscard]] Outcome check_case(World& world, const Case& all, const Place& place, std::chrono::milliseconds deadline,
                                 const Hooks& hooks = {});

}  // namespace shunt::bench::selftest
