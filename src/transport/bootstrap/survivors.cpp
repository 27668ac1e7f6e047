#include "transport/bootstrap/survivors.hpp"

#include <fcntl.h>

#include "core/fail.hpp"

namespace shunt::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Descriptor> copies_of(const Descriptor& descriptor) {
  std::vector<Descriptor> copies;
  copies.emplace_back(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!copies.front().valid()) fail_errno("can't copy a descriptor");
  return copies;
}

bool is_gone(RankId self, const Losses& losses, RankId rank) {
  return rank != self && (rank == losses.named || losses.is_gone(rank));
}

/// The same on all survivors, unless they differ in which ranks are left; then those that find no majority fail.
RankId choose_coordinator(const SurvivorContacts& contacts, const Losses& losses) {
  for (std::size_t r = 0; r < contacts.endpoints.size(); ++r)
    if (const RankId rank(r); rank != losses.named && !is_gone(contacts.rank, losses, rank)) return rank;
  fail(ErrorCode::minority, "rank {} finds none of the {} other ranks", contacts.rank, contacts.endpoints.size() - 1);
}

}  // namespace

Losses losses_of(Transport& world) {
  Losses losses{std::nullopt, [&world](RankId rank) {
                  world.suspect(rank);
                  return world.is_gone(rank);
                }};
  if (const auto fault = world.fault(); fault && fault->code == ErrorCode::peer_lost) losses.named = fault->culprit;
  return losses;
}

std::unique_ptr<Rendezvous> join_survivors(const SurvivorContacts& contacts, const Losses& losses,
                                           std::chrono::milliseconds limit) {
  if (!contacts.own.socket.valid())
    fail(ErrorCode::invalid_argument, "rank {}: a world is rebuilt once; rebuild the one that came of it",
         contacts.rank);
  const auto deadline = Clock::now() + limit;
  for (;;) {
    const RankId coordinator = choose_coordinator(contacts, losses);
    const RendezvousOptions options{
        .rank = contacts.rank,
        .size = static_cast<std::int32_t>(contacts.endpoints.size()),
        .endpoint = contacts.endpoints[coordinator.index()],
        .token = contacts.token,
        .limit = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()),
        .coordinator = coordinator,
        .is_gone = [self = contacts.rank, losses](RankId rank) { return is_gone(self, losses, rank); }};
    try {
      if (contacts.rank != coordinator) return join_rendezvous(options);
      net::accept_many(contacts.own);
      return join_rendezvous(options, copies_of(contacts.own.socket));
    } catch (const Error& error) {
      // Another rank was lost meanwhile: try again without it.
      if (error.code() != ErrorCode::peer_lost || Clock::now() >= deadline) throw;
    }
  }
}

}  // namespace shunt::bootstrap
