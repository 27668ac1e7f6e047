// The *slice* capability: runs of bytes to peers whose memory this rank can't address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "shunt/ids.hpp"

namespace shunt {

/// The position of a slice; travels with it.
struct SliceTag {
  std::uint64_t engine = 0;
  std::uint32_t sequence = 0;
  std::uint32_t index = 0;  ///< in its stream, from 0; slices may arrive out of order
  bool is_last = false;     ///< of its stream
};

/// A buffer of this rank to be filled; freed with the last copy of `owner`.
struct OutSlice {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

struct InSlice {
  RankId from;
  SliceTag tag;
  std::span<const std::byte> bytes;  ///< valid as long as `owner`
  std::shared_ptr<const void> owner;
};

/// One rank's end. One thread at a time may use it, the one that polls messages. The caller ensures that a peer is
/// ready for a slice: what was posted arrives, and stays in the peer's memory until the peer frees it. The sender's
/// buffer is free once the peer has polled, whatever the peer does with the bytes.
class SliceLink {
 public:
  virtual ~SliceLink() = default;

  /// A buffer of `bytes`, aligned to cache lines; none while too many are being sent. When one is freed,
  /// Transport::observe() changes.
  virtual std::optional<OutSlice> open(std::size_t bytes) = 0;
  /// Sends the first `bytes` of the buffer. Never blocks.
  virtual void post(RankId peer, OutSlice slice, std::size_t bytes, const SliceTag& tag) = 0;
  /// False when nothing has arrived.
  virtual bool poll(InSlice& slice) = 0;
  /// Call it before the peer is granted `num_slices` more, each of at most `bytes_each`; a negative number takes back
  /// what it will not use. A network stores no slice beyond that, and the peer is the culprit of a fault.
  virtual void expect(RankId peer, std::int64_t num_slices, std::size_t bytes_each) = 0;
};

}  // namespace shunt
