// One operation's traffic with one far rank: credits, slices and segments of both directions.
//
// A receiver grants its sender room slice by slice, per operation and peer. So a slice never waits behind one of
// another operation, and granted slices fit the receiver's memory. A segment (a row, or a sum in its place) starts a
// new slice if it does not fit into the current one, and straddles slices only if it is larger than a slice; readers
// accept any split.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shunt/ids.hpp"
#include "transport/slice_link.hpp"

namespace shunt {

/// Limits on what a receiver grants. They never change results.
struct SliceLimits {
  std::size_t slice_bytes;
  std::uint32_t depth;  ///< slices in flight per channel; 0: depends on the number of peers

  /// Deep rings for few peers, so that senders need not wait for grants; shallow ones for many peers.
  [[nodiscard]] std::uint32_t depth_for(std::size_t num_peers) const {
    constexpr std::size_t kShared = 32, kLeast = 4, kMost = 16;
    if (depth > 0) return depth;
    return static_cast<std::uint32_t>(std::clamp(kShared / std::max<std::size_t>(num_peers, 1), kLeast, kMost));
  }
};

class SliceChannel {
 public:
  /// State that the channels of one operation share on this rank.
  struct Shared {
    SliceLink& link;
    SliceLimits limits;
    std::atomic<std::uint64_t>& num_bytes_sent;
    SliceTag tag;  ///< engine and sequence
    RankId self;
    std::function<void(RankId member, std::uint32_t num_slices)> post_grant;
    bool link_was_full = false;  ///< since last cleared; no signal announces room in the link
  };

  // Credits from the peer; they may arrive before open() and after close().

  /// False for a grant that violates the protocol: more room than the slices read and the first grant allow.
  bool take_grant(std::uint64_t num_slices, std::uint64_t bytes_each);
  /// True once the peer has granted one slice for each that it read, except the last.
  [[nodiscard]] bool has_granted_all() const { return granted_ > 0 && granted_ == most_granted(); }

  /// Grants the peer its first slices, which is also this rank's announcement. `peer` is its rank in the operation's
  /// world, `member` in the transport; `shared` must outlive all use until close().
  void open(Shared& shared, RankId peer, RankId member);
  /// Call when the peer will send no more: revokes unused grants at the link.
  void close();
  [[nodiscard]] bool is_open() const { return shared_ != nullptr; }
  [[nodiscard]] RankId peer() const { return peer_; }

  /// Call before the first slice in that direction. The peer counts as awaited until the direction has ended.
  void begin_sending() { is_sending_ = true; }
  void begin_receiving() { is_receiving_ = true; }
  [[nodiscard]] bool is_awaited() const { return is_sending_ || (is_receiving_ && !is_all_here()); }

  // To the peer: slices.

  /// Slices that the peer has room for now, and when it has read everything.
  [[nodiscard]] std::uint32_t room() const { return granted_ - num_posted_; }
  [[nodiscard]] std::uint32_t most_room() const { return first_grant_; }
  /// Largest slice to the peer; 0 before its first grant. At most this rank's own limit, so a peer's grant can't make
  /// this rank allocate more.
  [[nodiscard]] std::size_t slice_bytes() const { return std::min(granted_bytes_, shared_->limits.slice_bytes); }
  /// A buffer for the next slice; none while the peer or the link has no room.
  std::optional<OutSlice> open_slice();
  /// The buffer may be the caller's own, of at most slice_bytes().
  void post_slice(OutSlice slice, std::size_t bytes, bool is_last);

  // To the peer: segments.

  /// Memory for one segment, to be filled before commit(); nullptr while there is no room.
  std::byte* open_segment(std::size_t bytes);
  void commit();
  /// Posts committed segments as far as there is room. Call repeatedly before a pause in sending.
  void flush();
  /// Call after the last segment until it returns true: then everything was posted.
  bool finish_sending();
  [[nodiscard]] bool is_sending() const { return is_sending_; }

  // From the peer: slices.

  /// Throws PeerError for a slice that was not granted.
  void arrive(InSlice slice);
  /// The next slice in order; nullptr if it has not arrived.
  [[nodiscard]] const InSlice* front_slice() const;
  /// Frees the front slice and grants room for another.
  void pop_slice();
  /// True once the last slice was popped.
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  /// True once all slices have arrived, read or not.
  [[nodiscard]] bool is_all_here() const { return num_arrived_ == num_slices_; }

  // From the peer: segments.

  /// The next segment, valid until pop(); nullptr while it has not arrived as a whole.
  const std::byte* front(std::size_t bytes);
  void pop();
  /// True once the peer's slices have ended. Throws PeerError if they go on after the last segment.
  bool finish_receiving();

  /// Throws PeerError for a violation of the protocol. `text` continues after the peer's name.
  [[noreturn]] void refuse(const std::string& text) const;

 private:
  static constexpr std::uint32_t kUnknown = 0xffff'ffffu;

  [[nodiscard]] std::uint64_t most_granted() const {
    return std::uint64_t{first_grant_} + num_posted_ - has_posted_last_;
  }
  void grant(std::uint32_t num_slices);
  [[nodiscard]] bool is_granted(const InSlice& slice) const;
  bool start_slice();
  void post_current(bool is_last);
  bool flush_large();

  Shared* shared_ = nullptr;  // none before open() and after close()
  RankId peer_;
  RankId member_;

  // To the peer.
  std::uint32_t first_grant_ = 0;  // slices
  std::uint32_t granted_ = 0;      // slices granted since the beginning
  std::size_t granted_bytes_ = 0;  // per slice; the same in all grants
  std::uint32_t num_posted_ = 0;
  bool has_posted_last_ = false;
  bool is_sending_ = false;
  bool is_large_ = false;          // the current segment is in large_
  std::optional<OutSlice> slice_;  // being filled
  std::size_t filled_ = 0;         // bytes of slice_
  std::size_t opened_ = 0;         // bytes of the segment between open_segment() and commit()
  std::vector<std::byte> large_;   // a segment that is larger than a slice
  std::size_t large_posted_ = 0;

  // From the peer.
  bool is_receiving_ = false;
  bool has_ended_ = false;
  bool is_whole_ = false;  // pieces_ holds all of its segment
  std::uint32_t num_granted_ = 0;
  std::uint32_t next_ = 0;  // index of the slice to be read next
  std::uint32_t num_arrived_ = 0;
  std::uint32_t num_slices_ = kUnknown;       // total, once the last one has arrived
  std::map<std::uint32_t, InSlice> arrived_;  // by index
  std::size_t used_ = 0;                      // bytes of the front slice
  std::size_t front_bytes_ = 0;               // of the segment that front() returned from the front slice
  std::vector<std::byte> pieces_;             // of a segment that straddles slices
};

}  // namespace shunt
