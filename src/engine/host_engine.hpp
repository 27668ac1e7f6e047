// The engine on host memory.
#pragma once

#include <memory>

#include "engine/engine_impl.hpp"

namespace shunt {

std::shared_ptr<Engine::Impl> make_host_engine(World& world, const EngineOptions& options);

}  // namespace shunt
