// What a World holds.
#pragma once

#include <map>
#include <memory>

#include "engine/fabric.hpp"
#include "engine/operation.hpp"
#include "shunt/world.hpp"
#include "transport/join.hpp"

namespace shunt {

struct DeviceHeap;

struct World::Impl {
  std::shared_ptr<Fabric> fabric;
  std::shared_ptr<const Group> group;
  Topology topology;

  std::uint32_t next_sequence = 0;  // of the world's own collectives
  std::uint32_t num_engines = 0;    // made so far; gives engines their identity
  std::uint32_t num_splits = 0;
  std::unique_ptr<Rebuilder> rebuilder = nullptr;                         // none: can't be rebuilt
  std::map<std::int32_t, std::shared_ptr<DeviceHeap>> device_heaps = {};  // by device, of the engines there
};

/// How ranks that have joined become a world.
std::shared_ptr<World::Impl> make_world(Joined joined, const Environment& environment);
}  // namespace shunt
