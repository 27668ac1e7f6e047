// Segments in a stream of slices. A segment starts a new slice where it doesn't fit the rest of the current one, and
// straddles slices only where it is larger than a slice; the reader takes any cut.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/streams.hpp"

namespace shunt {

/// Segments in, slices out.
class SegmentWriter {
 public:
  SegmentWriter(Streams& streams, RankId peer) : streams_(&streams), peer_(peer) {}

  [[nodiscard]] RankId peer() const { return peer_; }
  /// Room for one segment, to be filled before commit(); nullptr while the stream has none.
  std::byte* open(std::size_t bytes);
  void commit();
  /// Posts what has been committed, as far as there is room; to be called, again and again, before a pause.
  void flush();
  /// After the last segment, until it returns true: what is left has been posted.
  bool finish();
  [[nodiscard]] bool is_finished() const { return finished_; }

 private:
  bool open_slice();
  void post(bool is_last);
  bool flush_large();

  Streams* streams_;
  RankId peer_;
  std::optional<OutSlice> slice_;
  std::size_t used_ = 0;          // bytes of slice_
  std::size_t opened_ = 0;        // bytes of the segment between open() and commit()
  std::vector<std::byte> large_;  // a segment that is larger than a slice
  std::size_t large_posted_ = 0;
  bool is_large_ = false;
  bool finished_ = false;
};

/// Slices in, segments out.
class SegmentReader {
 public:
  SegmentReader(Streams& streams, RankId peer) : streams_(&streams), peer_(peer) {}

  [[nodiscard]] RankId peer() const { return peer_; }
  /// The next segment, valid until pop(); nullptr while it has not arrived as a whole.
  const std::byte* front(std::size_t bytes);
  void pop();
  /// True once the stream has ended. Throws PeerError if it goes on after the last segment.
  bool finish();
  [[nodiscard]] bool has_ended() const { return streams_->has_ended(peer_); }
  /// All of the stream has arrived, read or not.
  [[nodiscard]] bool is_all_here() const { return streams_->is_all_here(peer_); }

 private:
  Streams* streams_;
  RankId peer_;
  std::size_t used_ = 0;           // bytes of the front slice
  std::size_t front_ = 0;          // bytes of the segment that front() gave; 0: none
  std::vector<std::byte> pieces_;  // of a segment that straddles slices
  bool is_whole_ = false;          // pieces_ holds all of it
};

}  // namespace shunt
