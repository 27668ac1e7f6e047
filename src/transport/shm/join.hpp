// Ranks as processes of one host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/local/local_transport.hpp"

namespace shunt::shm {

struct JoinOptions {
  RankId rank;
  std::int32_t size = 1;
  /// The same for all ranks of the world and for no other world on this host.
  std::string job;
  /// What the ranks are called in messages and faults, where this world is a part of a larger one; empty: as they are.
  std::vector<RankId> names = {};
  std::chrono::milliseconds join_limit{60'000};
  std::chrono::milliseconds liveness_limit{5'000};
  /// What is known of the larger world, asked now and then: its Error ends the wait.
  std::function<std::optional<Fault>()> fault = nullptr;

  [[nodiscard]] RankId name(RankId local) const {
    return local.valid() && local.index() < names.size() ? names[local.index()] : local;
  }
};

/// The name of a socket, of fixed length, as such names are short and job names may not be. Differs between users.
std::string meeting_place(const std::string& job);

/// Meets the other ranks: rank 0 listens on an abstract socket (which has no name in the file system), the others
/// connect, and each rank gets every peer's segment and a socket to every peer. Only processes of the same user are let
/// in, and one that is silent or talks nonsense delays nobody. Throws, on every rank that has found rank 0, the same
/// Error: deadline, naming the ranks that did not come; mismatch, naming the rank that is there twice or believes in
/// another size; peer_lost, naming one that ended; or that of a fault of the larger world.
std::shared_ptr<LocalTransport> join(const JoinOptions& options);

}  // namespace shunt::shm
