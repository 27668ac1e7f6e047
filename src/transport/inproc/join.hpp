// Ranks as threads of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/local/local_transport.hpp"

namespace shunt::inproc {

/// All ranks' ends of one new world, in rank order; each is then used by one thread.
std::vector<std::shared_ptr<Transport>> join(std::int32_t num_ranks);

/// One rank's end. The same `world` finds the same memory; `names` are the ranks of the world that are threads of this
/// process, ascending, `self` among them.
std::shared_ptr<LocalTransport> attach(const std::string& world, RankId self, std::vector<RankId> names);

}  // namespace shunt::inproc
