// Ranks of several hosts.
#pragma once

#include <chrono>

#include "transport/far/make_carrier.hpp"
#include "transport/net/meeting.hpp"
#include "transport/reunion.hpp"

namespace shunt::far {

struct JoinOptions {
  net::MeetingOptions meeting;
  CarrierOptions carrier;
  std::chrono::milliseconds liveness_limit{5'000};
};

/// Meets the other ranks, then joins those of the own host over shared memory and the others over the network.
/// Collective; throws what make_carrier, net::meet and shm::join throw, and Error(mismatch) where ranks would use
/// different kinds of network.
Joined join(const JoinOptions& options);

}  // namespace shunt::far
