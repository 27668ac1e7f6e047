// One operation's traffic with one far rank: credits, slices and segments of both directions.
//
// A receiver grants its sender room slice by slice, per operation and peer. So a slice never waits behind one of
// another operation, and what has been granted fits the receiver's memory. A segment (a row, or what travels in its
// place) starts a new slice where it doesn't fit the rest of the current one, and straddles slices only where it is
// larger than a slice; the reader takes any cut.
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

/// How much a receiver grants. Any values give the same results.
struct SliceLimits {
  std::size_t slice_bytes;
  std::uint32_t depth;  ///< slices on their way per channel; 0: as suits the number of peers

  /// Few peers get deep rings, which need no waiting for grants; of many, each gets enough to keep the others busy.
  [[nodiscard]] std::uint32_t depth_for(std::size_t num_peers) const {
    constexpr std::size_t kShared = 32, kLeast = 4, kMost = 16;
    if (depth > 0) return depth;
    return static_cast<std::uint32_t>(std::clamp(kShared / std::max<std::size_t>(num_peers, 1), kLeast, kMost));
  }
};

class SliceChannel {
 public:
  /// What the channels of one operation share on this rank.
  struct Shared {
    SliceLink& link;
    SliceLimits limits;
    std::atomic<std::uint64_t>& num_bytes_sent;
    SliceTag tag;  ///< engine and sequence
    RankId self;
    std::function<void(RankId member, std::uint32_t num_slices)> post_grant;
    bool link_was_full = false;  ///< since it was last cleared: room in the link is announced by no peer
  };

  // Credits from the peer; they may come before open() and after close().

  /// False for a grant that no honest peer gives: room for what was not sent yet, or will never be sent.
  bool take_grant(std::uint64_t num_slices, std::uint64_t bytes_each);
  /// One slice more for each that the peer has read, but the last.
  [[nodiscard]] bool has_granted_all() const { return granted_ > 0 && granted_ == most_granted(); }

  /// Grants the peer its first slices, and so tells it that this rank is here. `peer` is its rank in the operation's
  /// world, `member` in the transport; `shared` outlives all use up to close().
  void open(Shared& shared, RankId peer, RankId member);
  /// Once the peer will send no more: room that it has not used is granted no longer.
  void close();
  [[nodiscard]] bool is_open() const { return shared_ != nullptr; }
  [[nodiscard]] RankId peer() const { return peer_; }

  /// To be called before the first slice there, or back: until that direction has come to its end the peer is awaited.
  void begin_sending() { is_sending_ = true; }
  void begin_receiving() { is_receiving_ = true; }
  [[nodiscard]] bool is_awaited() const { return is_sending_ || (is_receiving_ && !is_all_here()); }

  // To the peer: slices.

  /// Slices that the peer has room for now, and once it has read all that it was sent.
  [[nodiscard]] std::uint32_t room() const { return granted_ - num_posted_; }
  [[nodiscard]] std::uint32_t most_room() const { return first_grant_; }
  /// Largest slice to the peer; 0 before it has granted room. No larger than this rank's own: what a peer grants says
  /// nothing of this rank's memory.
  [[nodiscard]] std::size_t slice_bytes() const { return std::min(granted_bytes_, shared_->limits.slice_bytes); }
  /// A buffer for the next slice; none while the peer has granted no room or the link has none.
  std::optional<OutSlice> open_slice();
  /// The buffer may also be the caller's own, of slice_bytes() at most.
  void post_slice(OutSlice slice, std::size_t bytes, bool is_last);

  // To the peer: segments.

  /// Room for one segment, to be filled before commit(); nullptr while there is none.
  std::byte* open_segment(std::size_t bytes);
  void commit();
  /// Posts what has been committed, as far as there is room; to be called, again and again, before a pause.
  void flush();
  /// After the last segment, until it returns true: what is left has been posted.
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
  /// True once all slices are here, read or not.
  [[nodiscard]] bool is_all_here() const { return num_arrived_ == num_slices_; }

  // From the peer: segments.

  /// The next segment, valid until pop(); nullptr while it has not arrived as a whole.
  const std::byte* front(std::size_t bytes);
  void pop();
  /// True once the peer's slices have ended. Throws PeerError if they go on after the last segment.
  bool finish_receiving();

  /// Throws PeerError: the peer did not send what was agreed. `text` goes on after its name.
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

  // There.
  std::uint32_t first_grant_ = 0;  // slices
  std::uint32_t granted_ = 0;      // slices that the peer has room for, counted from the beginning
  std::size_t granted_bytes_ = 0;  // of each of them; the same in all its grants
  std::uint32_t num_posted_ = 0;
  bool has_posted_last_ = false;
  bool is_sending_ = false;
  bool is_large_ = false;          // the segment at hand is in large_
  std::optional<OutSlice> slice_;  // being filled
  std::size_t filled_ = 0;         // bytes of slice_
  std::size_t opened_ = 0;         // bytes of the segment between open_segment() and commit()
  std::vector<std::byte> large_;   // a segment that is larger than a slice
  std::size_t large_posted_ = 0;

  // Back.
  bool is_receiving_ = false;
  bool has_ended_ = false;
  bool is_whole_ = false;  // pieces_ holds all of its segment
  std::uint32_t num_granted_ = 0;
  std::uint32_t next_ = 0;  // index of the slice to be read next
  std::uint32_t num_arrived_ = 0;
  std::uint32_t num_slices_ = kUnknown;       // of them all, once the last one is here
  std::map<std::uint32_t, InSlice> arrived_;  // by index
  std::size_t used_ = 0;                      // bytes of the front slice
  std::size_t front_bytes_ = 0;               // of the segment that front() gave out of the front slice
  std::vector<std::byte> pieces_;             // of a segment that straddles slices
};

}  // namespace shunt
