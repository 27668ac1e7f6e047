// Runs of segments to one far rank: kernels pack batches of them into host buffers, from which they are sent as slices.
#pragma once

#include <deque>
#include <vector>

#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/traffic.hpp"
#include "engine/slice_channel.hpp"

namespace shunt::device {

/// A batch is packed only into room that the peer has granted, so no buffer waits for a peer that is somewhere else
/// (docs/adr/0005). Slices end where segments end, unless a segment is larger than a slice.
class PackedStream {
 public:
  PackedStream(SliceChannel& channel, std::vector<Run> runs);

  /// Packs what there is room for, of the runs before `end_run`, and sends what is packed. True if something moved.
  bool pump(Lane& lane, std::size_t end_run);
  [[nodiscard]] bool is_finished() const { return run_ == runs_.size() && batches_.empty(); }

 private:
  struct Batch {
    std::shared_ptr<std::byte> buffer;
    Lane::Mark packed;
    std::size_t bytes;
    std::size_t bytes_per_slice;
    bool is_last;
    std::size_t bytes_sent = 0;

    [[nodiscard]] std::size_t slices_left() const {
      return (bytes - bytes_sent + bytes_per_slice - 1) / bytes_per_slice;
    }
  };

  void skip_empty_runs();
  [[nodiscard]] std::size_t free_room() const;
  bool pack(Lane& lane);
  bool send(Batch& batch);

  SliceChannel& channel_;
  std::vector<Run> runs_;
  std::size_t run_ = 0;    // being packed
  std::int64_t next_ = 0;  // segment of it
  std::deque<Batch> batches_;
};

}  // namespace shunt::device
