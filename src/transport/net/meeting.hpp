// Where ranks meet: at rank 0 or, after a fault, at the first of the survivors. Each proves that it knows the job's
// token, and brings a card with what the others must know of it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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
  /// Of the host, a name or a number; of several, separated by commas, the first that answers; "@name" is a socket of
  /// this machine.
  std::string address;
  std::uint16_t port = 0;  ///< where the host listens
  /// An interface or an address of this machine; the host listens there only, and guests connect from there. Empty:
  /// everywhere.
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
  /// The rank that holds the meeting.
  RankId host{0};
  /// For survivors: who is not waited for. Called now and then while waiting. None: all ranks have to come.
  std::function<bool(RankId)> is_gone = nullptr;
};

/// What every rank knows after the meeting. Those who have met are numbered anew, in the order of their ranks.
class Meeting {
 public:
  struct Guest {
    RankId rank;  ///< with which it came
    Nonce nonce{};
    std::string address;  ///< as the host sees it; the host's own is that of the place
    std::vector<std::byte> card;
  };

  Meeting(std::string token, std::vector<Guest> guests) : token_(std::move(token)), guests_(std::move(guests)) {}

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(guests_.size()); }
  /// With which rank it came.
  [[nodiscard]] RankId former(RankId rank) const { return guests_[rank.index()].rank; }
  [[nodiscard]] std::vector<RankId> former_ranks() const;
  /// Of one that has met.
  [[nodiscard]] RankId rank_of(RankId former) const;
  [[nodiscard]] const std::string& address(RankId rank) const { return guests_[rank.index()].address; }
  [[nodiscard]] std::span<const std::byte> card(RankId rank) const { return guests_[rank.index()].card; }
  /// Of messages from one rank to another; who does not know the token can't guess it.
  [[nodiscard]] SessionId session(RankId from, RankId to) const;
  /// The same text on all ranks and in no other meeting.
  [[nodiscard]] std::string name() const;

 private:
  std::string token_;
  std::vector<Guest> guests_;
};

/// Collective, blocking; the card has at most 1 MiB. Throws Error(deadline) that names who is missing,
/// Error(invalid_argument) for a token that is empty or that the host does not accept, and for a place whose names do
/// not exist, Error(mismatch) for ranks that disagree about the job, Error(peer_lost) for a rank that came but ended
/// before all had met, Error(system). All that the host has accepted throw the same; whom it does not accept delays
/// nobody.
Meeting meet(const MeetingOptions& options, std::span<const std::byte> card);

}  // namespace shunt::net
