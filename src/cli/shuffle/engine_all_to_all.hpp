// An all-to-all over shunt's own transport, for the `unfused` baseline.
#pragma once

#include <memory>

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/staged_system.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Each rank is one expert and each row of the send buffer a token with one choice, so that shunt's own dispatch is a
/// plain all-to-all of rows, and its combine the way back.
std::shared_ptr<AllToAll> make_engine_all_to_all(World& world, const ShuffleConfig& config);

}  // namespace shunt::cli
