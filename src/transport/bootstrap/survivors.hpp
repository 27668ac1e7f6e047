// Survivors of a fault find each other. Every rank listens from the day its world is made; the first that is left
// coordinates.
#pragma once

#include "transport/bootstrap/rendezvous.hpp"
#include "transport/transport.hpp"

namespace shunt::bootstrap {

/// What a rank keeps for the day when another one is lost.
struct SurvivorContacts {
  RankId rank;
  net::Listener own;                     ///< none once the world was rebuilt
  std::vector<net::Endpoint> endpoints;  ///< everybody's, by rank
  std::string token;                     ///< known to the ranks of this world only
};

/// What a rank knows of the others.
struct Losses {
  std::optional<RankId> named;          ///< by the fault; it does not coordinate, but may come
  std::function<bool(RankId)> is_gone;  ///< of another rank; called now and then while waiting
};
/// As the transport of the world sees them.
Losses losses_of(Transport& world);

/// Collective over the survivors; blocks until all have come that are not gone, or the limit has passed. All of them
/// have the same members. Throws Error(minority) where these are too few; then also others may go on, or none. Throws
/// Error(deadline) for a survivor that waits in vain for one that lives.
std::unique_ptr<Rendezvous> join_survivors(const SurvivorContacts& contacts, const Losses& losses,
                                           std::chrono::milliseconds limit);

}  // namespace shunt::bootstrap
