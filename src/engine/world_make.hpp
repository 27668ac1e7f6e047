// How a transport becomes a world.
#pragma once

#include <memory>
#include <vector>

#include "engine/world_impl.hpp"

namespace shunt {

std::shared_ptr<World::Impl> make_world(std::shared_ptr<Transport> transport, const Topology& topology,
                                        const Environment& environment);

}  // namespace shunt
