#include "engine/cuda/cluster/packed_stream.hpp"

#include <algorithm>

namespace shunt::device {

PackedStream::PackedStream(SliceChannel& channel, std::vector<Run> runs) : channel_(channel), runs_(std::move(runs)) {
  skip_empty_runs();
  if (run_ < runs_.size()) channel_.begin_sending();
}

void PackedStream::skip_empty_runs() {
  for (; run_ < runs_.size() && next_ == runs_[run_].num_segments; ++run_) next_ = 0;
}

bool PackedStream::pump(Lane& lane, std::size_t end_run) {
  bool moved = false;
  while (!batches_.empty() && batches_.front().packed() && send(batches_.front())) {
    batches_.pop_front();
    moved = true;
  }
  while (run_ < std::min(end_run, runs_.size()) && pack(lane)) moved = true;
  return moved;
}

std::size_t PackedStream::free_room() const {
  std::size_t promised = 0;
  for (const Batch& batch : batches_) promised += batch.slices_left();
  const std::size_t room = channel_.room();
  return room - std::min(room, promised);
}

// A launch costs about as much as a slice's way: so it waits until there is room for a whole batch or half of the most
// room. That room comes, as the peer reads all that it is sent.
bool PackedStream::pack(Lane& lane) {
  const std::size_t room = free_room();
  if (room == 0) return false;
  const Run& run = runs_[run_];
  const std::size_t slice = channel_.slice_bytes();
  const std::size_t per_slice = slice / run.segment_bytes;
  const auto left = static_cast<std::size_t>(run.num_segments - next_);
  std::size_t count = 1;
  if (per_slice > 0) {
    const std::size_t wanted = std::min(left, lane.buffer_bytes() / run.segment_bytes);
    const std::size_t half = std::max<std::size_t>(channel_.most_room() / 2, 1);
    if (room * per_slice < wanted && room < half) return false;
    count = std::min(wanted, room * per_slice);
  }
  auto buffer = lane.take_buffer(Way::out);
  if (!buffer) return false;
  run.launch(next_, static_cast<std::int64_t>(count), buffer.get());
  next_ += static_cast<std::int64_t>(count);
  skip_empty_runs();
  batches_.push_back({.buffer = std::move(buffer),
                      .packed = lane.mark(),
                      .bytes = count * run.segment_bytes,
                      .bytes_per_slice = per_slice == 0 ? slice : per_slice * run.segment_bytes,
                      .is_last = run_ == runs_.size()});
  return true;
}

bool PackedStream::send(Batch& batch) {
  while (batch.bytes_sent < batch.bytes) {
    if (channel_.room() == 0) return false;
    const std::size_t bytes = std::min(batch.bytes_per_slice, batch.bytes - batch.bytes_sent);
    const std::span slice(batch.buffer.get() + batch.bytes_sent, bytes);
    batch.bytes_sent += bytes;
    channel_.post_slice({slice, batch.buffer}, bytes, batch.is_last && batch.bytes_sent == batch.bytes);
  }
  return true;
}

}  // namespace shunt::device
