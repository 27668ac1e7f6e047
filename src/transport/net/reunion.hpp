// Where the survivors of a world meet after a fault. Every rank listens at its seat from the day the world is made; the
// first that is left holds the meeting.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/meeting.hpp"
#include "transport/net/tcp.hpp"
#include "transport/transport.hpp"

namespace shunt::net {

/// What a rank keeps for a reunion.
struct Seating {
  RankId rank;
  Seat own;
  std::vector<MeetingPlace> places;  ///< everybody's seats, by rank
  std::string token;                 ///< known to the ranks of this world only
};

/// What a rank knows of the others.
struct Losses {
  std::optional<RankId> named;          ///< by the fault; it holds no meeting, but may come to one
  std::function<bool(RankId)> is_gone;  ///< of another rank; called now and then while waiting
};

/// Collective over the survivors; blocks until all have come that are not gone, or the limit has passed. All that meet
/// have met the same ranks. Throws Error(minority) where these are too few; then also others may meet, or nobody.
/// Throws Error(deadline) for a survivor that waits in vain for one that lives.
Meeting meet_survivors(const Seating& seating, const Losses& losses, std::chrono::milliseconds limit,
                       std::span<const std::byte> card);

/// The same as the transport of the world sees it.
Meeting meet_survivors_of(Transport& world, const Seating& seating, std::chrono::milliseconds limit,
                          std::span<const std::byte> card);
/// Once the new world stands: until then another loss makes survivors meet again.
void leave(Transport& world, Seating& seating);

}  // namespace shunt::net
