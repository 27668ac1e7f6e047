#include "transport/net/reunion.hpp"

#include <fcntl.h>

#include "core/fail.hpp"
#include "transport/net/guest.hpp"
#include "transport/net/host.hpp"

namespace shunt::net {
namespace {

using Clock = std::chrono::steady_clock;

Descriptor copy_of(const Descriptor& descriptor) {
  Descriptor copy(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) fail_errno("can't copy a descriptor");
  return copy;
}

bool is_gone(const Seating& seating, const Losses& losses, RankId rank) {
  return rank != seating.rank && (rank == losses.named || losses.is_gone(rank));
}

/// All survivors choose the same one, unless they differ in who is left; then whoever finds no majority fails.
RankId choose_host(const Seating& seating, const Losses& losses) {
  for (std::size_t r = 0; r < seating.places.size(); ++r)
    if (const RankId rank(r); rank != losses.named && !is_gone(seating, losses, rank)) return rank;
  fail(ErrorCode::minority, "rank {} finds none of the {} other ranks", seating.rank, seating.places.size() - 1);
}

std::vector<Meeting::Guest> hold_or_visit(const MeetingOptions& options, const Seat& seat,
                                          std::span<const std::byte> card) {
  if (options.rank != options.host) return Guest(options, card).meet();
  expect_visitors(seat);
  std::vector<Descriptor> listeners;
  listeners.push_back(copy_of(seat.listener));
  return Host(options, card, std::move(listeners)).meet();
}

}  // namespace

Meeting meet_survivors(const Seating& seating, const Losses& losses, std::chrono::milliseconds limit,
                       std::span<const std::byte> card) {
  if (!seating.own.listener.valid())
    fail(ErrorCode::invalid_argument, "rank {}: a world is rebuilt once; rebuild the one that came of it",
         seating.rank);
  const auto deadline = Clock::now() + limit;
  for (;;) {
    const RankId host = choose_host(seating, losses);
    const MeetingOptions meeting{
        .rank = seating.rank,
        .size = static_cast<std::int32_t>(seating.places.size()),
        .place = seating.places[host.index()],
        .token = seating.token,
        .number = 0,
        .limit = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()),
        .host = host,
        .is_gone = [&](RankId rank) { return is_gone(seating, losses, rank); }};
    try {
      return {seating.token, hold_or_visit(meeting, seating.own, card)};
    } catch (const Error& error) {
      // Another one was lost meanwhile: meet again without it.
      if (error.code() != ErrorCode::peer_lost || Clock::now() >= deadline) throw;
    }
  }
}

Meeting meet_survivors_of(Transport& world, const Seating& seating, std::chrono::milliseconds limit,
                          std::span<const std::byte> card) {
  Losses losses{std::nullopt, [&](RankId rank) {
                  world.suspect(rank);
                  return world.is_gone(rank);
                }};
  if (const auto fault = world.fault(); fault && fault->code == ErrorCode::peer_lost) losses.named = fault->culprit;
  return meet_survivors(seating, losses, limit, card);
}

void leave(Transport& world, Seating& seating) {
  seating.own = {};
  world.leave();
}

}  // namespace shunt::net
