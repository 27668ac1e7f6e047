// One operation's traffic with far ranks: per peer a stream of slices there and one back.
//
// A receiver grants its sender room slice by slice, per operation. So a slice never waits behind one of another
// operation, and what has been granted fits the receiver's memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "engine/arrivals.hpp"
#include "engine/operation.hpp"
#include "transport/slice_link.hpp"

namespace shunt {

/// How much a receiver grants. Any values give the same results.
struct StreamLimits {
  std::size_t slice_bytes;
  std::uint32_t depth;  ///< slices on their way per stream; 0: as suits the number of peers

  /// Few peers get deep streams, which need no waiting for grants; of many, each gets enough to keep the others busy.
  [[nodiscard]] std::uint32_t depth_for(std::size_t num_peers) const {
    constexpr std::size_t kShared = 32, kLeast = 4, kMost = 16;
    if (depth > 0) return depth;
    return static_cast<std::uint32_t>(std::clamp(kShared / std::max<std::size_t>(num_peers, 1), kLeast, kMost));
  }
};

class Streams {
 public:
  using PostGrant = std::function<void(RankId member, std::uint32_t num_slices, std::size_t slice_bytes)>;

  /// `arrivals` is by transport rank and outlives this object.
  Streams(SliceLink& link, const Group& group, const Operation::Key& key, std::vector<Arrivals::Peer>& arrivals,
          const StreamLimits& limits, std::atomic<std::uint64_t>& num_bytes_sent, PostGrant grant);

  // Ranks are ranks of the operation's world.

  /// Tells the peer that this rank is here, and makes room for the first slices.
  void welcome(RankId peer);

  /// Slices that the peer has room for now, and once it has read all that it was sent.
  [[nodiscard]] std::uint32_t room(RankId peer) const;
  [[nodiscard]] std::uint32_t most_room(RankId peer) const;
  /// Of a slice to the peer, at most; 0 before it has granted room.
  [[nodiscard]] std::size_t slice_bytes(RankId peer) const;
  /// A buffer for the next slice to the peer; none while it has granted no room or the link has none.
  std::optional<OutSlice> open(RankId peer);
  /// The buffer may also be the caller's own, of slice_bytes() at most.
  void post(RankId peer, OutSlice slice, std::size_t bytes, bool is_last);

  /// Takes a slice from the link. Throws PeerError for one that was not granted.
  void arrive(InSlice slice);
  /// The next slice from the peer in the stream's order; none if it has not arrived.
  [[nodiscard]] const InSlice* front(RankId peer) const;
  /// Frees the front slice and grants room for another.
  void pop(RankId peer);
  /// True once the last slice from the peer was popped.
  [[nodiscard]] bool has_ended(RankId peer) const { return states_[peer.index()].ended; }
  /// True once all slices from the peer are here; it is not waited for any more.
  [[nodiscard]] bool is_all_here(RankId peer) const {
    return states_[peer.index()].num_arrived == states_[peer.index()].num_slices;
  }
  /// Throws PeerError: the peer did not send what was agreed. `text` goes on after its name.
  [[noreturn]] void refuse(RankId peer, const std::string& text) const;
  /// Once no peer will send any more: room that none has used is granted no longer.
  void close();

 private:
  static constexpr std::uint32_t kUnknown = 0xffff'ffffu;

  struct State {
    std::uint32_t num_granted = 0;
    std::uint32_t next = 0;  // index of the slice to be read next
    std::uint32_t num_arrived = 0;
    std::uint32_t num_slices = kUnknown;  // of the whole stream, once the last one is here
    bool ended = false;
    std::map<std::uint32_t, InSlice> arrived;  // by index
  };

  void grant(RankId peer, std::uint32_t num_slices);
  [[nodiscard]] bool is_granted(const State& state, const InSlice& slice) const;

  SliceLink& link_;
  const Group& group_;
  const Operation::Key& key_;
  std::vector<Arrivals::Peer>& arrivals_;
  StreamLimits limits_;
  std::atomic<std::uint64_t>& num_bytes_sent_;
  PostGrant grant_;
  std::vector<State> states_;             // by rank in this world
  std::vector<std::int32_t> world_rank_;  // by transport rank; −1: not in this world
};

}  // namespace shunt
