// Survivors of a fault find each other. Every rank listens from the time its world is made; the first survivor
// coordinates.
#pragma once

#include "transport/bootstrap/rendezvous.hpp"
#include "transport/transport.hpp"

namespace shunt::bootstrap {

/// What a rank keeps for the case that another one is lost.
struct SurvivorContacts {
  RankId rank;
  net::Listener own;                     ///< none once the world was rebuilt
  std::vector<net::Endpoint> endpoints;  ///< of all ranks, by rank
  std::string token;                     ///< known to the ranks of this world only
};

/// The lost ranks, as far as a rank has found out.
struct Losses {
  std::optional<RankId> named;          ///< by the fault; it does not coordinate, but may join
  std::function<bool(RankId)> is_gone;  ///< for other ranks; called repeatedly while waiting
};
/// As the transport of the world sees them.
Losses losses_of(Transport& world);

/// Collective over the survivors; blocks until all ranks that are not gone have joined, or the limit has passed. All of
/// them get the same members. Throws Error(minority) where these are too few; other survivors may succeed then, or
/// none. Throws Error(deadline) for a survivor that waits for one that lives but does not join.
std::unique_ptr<Rendezvous> join_survivors(const SurvivorContacts& contacts, const Losses& losses,
                                           std::chrono::milliseconds limit);

}  // namespace shunt::bootstrap
