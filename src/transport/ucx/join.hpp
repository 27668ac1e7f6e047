// Ranks of several hosts.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "transport/net/meeting.hpp"
#include "transport/reunion.hpp"

namespace shunt::ucx {

struct JoinOptions {
  net::MeetingOptions meeting;
  std::string devices;     ///< UCX's names of network devices, comma-separated; empty: all
  std::string port_range;  ///< "first-last" for connections between ranks; empty: any
  std::chrono::milliseconds liveness_limit{5'000};
};

/// Meets the other ranks, then joins those of the own host over shared memory and the others over UCX.
/// Collective; throws what net::meet and shm::join throw, and Error(unsupported) where UCX was not built in.
Joined join(const JoinOptions& options);

}  // namespace shunt::ucx
