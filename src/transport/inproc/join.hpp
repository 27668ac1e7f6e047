// Ranks as threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace shunt::inproc {

/// All ranks' ends of one new world, in rank order; each is then used by one thread.
std::vector<std::shared_ptr<Transport>> join(std::int32_t num_ranks);

}  // namespace shunt::inproc
