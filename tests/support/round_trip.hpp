// The smallest use of an engine: rows go to their experts and come back.
#pragma once

#include <functional>

#include "shunt/engine.hpp"
#include "shunt/world.hpp"

namespace shunt::test {

/// Collective. Plans, dispatches and combines with an expert that changes nothing; throws unless the rows come back as
/// they were. Before each of the three it calls `before`, if there is one.
void round_trip(Engine& engine, const World& world, std::int64_t tokens, std::uint32_t seed,
                const std::function<void()>& before = {});

/// Collective: on an engine of its own.
void round_trip(World& world, std::uint32_t seed = 1);

}  // namespace shunt::test
