// Where ranks of several hosts meet: at rank 0, over TCP. Each proves that it knows the job's token, and brings a card
// with what the others must know of it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt::net {

/// Drawn anew by every rank for every meeting, so that nothing recorded can be replayed.
using Nonce = std::array<std::byte, 32>;

/// Says that a message belongs to this job, and from whom to whom it goes; never zero.
using SessionId = std::uint64_t;

struct MeetingPlace {
  std::string address;     ///< of rank 0, a name or a number; of several, separated by commas, the first that answers
  std::uint16_t port = 0;  ///< where rank 0 listens
  /// An interface or an address of this host; rank 0 listens there only. Empty: everywhere.
  std::string interface;
};

struct MeetingOptions {
  RankId rank;
  std::int32_t size = 0;
  MeetingPlace place;
  std::string token;
  /// Tells the meetings of one job apart: its n-th world meets at its n-th meeting.
  std::uint32_t number = 0;
  std::chrono::milliseconds limit{0};
};

/// What every rank knows after the meeting.
class Meeting {
 public:
  struct Guest {
    Nonce nonce;
    std::vector<std::byte> card;
  };

  Meeting(std::string token, std::vector<Guest> guests) : token_(std::move(token)), guests_(std::move(guests)) {}

  [[nodiscard]] std::span<const std::byte> card(RankId rank) const { return guests_[rank.index()].card; }
  /// Of messages from one rank to another; who does not know the token can't guess it.
  [[nodiscard]] SessionId session(RankId from, RankId to) const;
  /// The same text on all ranks and in no other meeting.
  [[nodiscard]] std::string name() const;

 private:
  std::string token_;
  std::vector<Guest> guests_;  // by rank
};

/// Collective, blocking; the card has at most 1 MiB. Throws Error(deadline) that names who is missing,
/// Error(invalid_argument) for a token that is empty or that rank 0 does not accept, Error(mismatch) for ranks that
/// disagree about the job, Error(peer_lost) for a rank that came but ended before all had met, Error(system). All that
/// rank 0 has accepted throw the same; whom it does not accept delays nobody.
Meeting meet(const MeetingOptions& options, std::span<const std::byte> card);

}  // namespace shunt::net
