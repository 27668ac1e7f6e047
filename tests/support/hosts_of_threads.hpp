// Two simulated machines in one process: their ranks are threads, joined over the loopback interface.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/far/make_carrier.hpp"
#include "transport/transport.hpp"

namespace shunt::test {

/// Why this build does not have the network; empty where it does.
std::string why_not(far::Network network);

/// The first half of the ranks is on one machine, the rest on the other.
std::vector<std::shared_ptr<Transport>> join_hosts(far::Network network, std::int32_t num_ranks,
                                                   std::chrono::milliseconds liveness);

}  // namespace shunt::test
