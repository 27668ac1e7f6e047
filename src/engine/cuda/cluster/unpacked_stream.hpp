// Runs of segments from one far rank: what has arrived of them is copied into host buffers, from which kernels unpack
// it.
#pragma once

#include <deque>
#include <vector>

#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/traffic.hpp"
#include "engine/slice_channel.hpp"

namespace shunt::device {

/// Takes slices as they come, in any cut. It holds no buffer while it waits for the peer.
class UnpackedStream {
 public:
  UnpackedStream(SliceChannel& channel, std::vector<Run> runs);

  /// Unpacks what is here. True if something moved.
  bool pump(Lane& lane);
  /// The run whose segments come next; all before it are launched.
  [[nodiscard]] std::size_t current_run() const { return run_; }
  /// All is launched, and the stream has ended. Throws PeerError if it goes on.
  bool finish();

 private:
  struct Batch {
    std::shared_ptr<std::byte> buffer;
    Lane::Mark unpacked;
  };

  void skip_empty_runs();
  /// Of the next batch.
  [[nodiscard]] std::size_t most_bytes(const Lane& lane) const;
  /// Copies what is here into the buffer.
  bool take(Lane& lane);
  /// Launches the buffer's segments, if it is time.
  bool unpack(Lane& lane);

  SliceChannel& channel_;
  std::vector<Run> runs_;
  std::size_t total_bytes_ = 0;
  std::size_t run_ = 0;                // being unpacked
  std::int64_t next_ = 0;              // segment of it
  std::size_t used_ = 0;               // bytes of the front slice
  std::shared_ptr<std::byte> buffer_;  // of the next batch, while the last one is unpacked
  std::size_t filled_ = 0;             // bytes of buffer_
  std::vector<std::byte> pieces_;      // of a segment that has not wholly arrived
  std::deque<Batch> batches_;          // whose buffers are read
};

}  // namespace shunt::device
