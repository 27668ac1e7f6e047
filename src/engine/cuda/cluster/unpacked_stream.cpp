#include "engine/cuda/cluster/unpacked_stream.hpp"

#include <algorithm>
#include <cstring>

namespace shunt::device {

UnpackedStream::UnpackedStream(SliceChannel& channel, std::vector<Run> runs)
    : channel_(channel), runs_(std::move(runs)) {
  for (const Run& run : runs_) total_bytes_ += static_cast<std::size_t>(run.num_segments) * run.segment_bytes;
  skip_empty_runs();
  if (total_bytes_ > 0) channel_.begin_receiving();
}

void UnpackedStream::skip_empty_runs() {
  for (; run_ < runs_.size() && next_ == runs_[run_].num_segments; ++run_) next_ = 0;
}

bool UnpackedStream::pump(Lane& lane) {
  while (!batches_.empty() && batches_.front().unpacked()) batches_.pop_front();
  bool moved = false;
  while (run_ < runs_.size()) {
    moved |= take(lane);
    if (!unpack(lane)) break;
    moved = true;
  }
  return moved;
}

std::size_t UnpackedStream::most_bytes(const Lane& lane) const {
  const Run& run = runs_[run_];
  const auto left = static_cast<std::size_t>(run.num_segments - next_);
  return std::min(lane.buffer_bytes() / run.segment_bytes, left) * run.segment_bytes;
}

bool UnpackedStream::take(Lane& lane) {
  const std::size_t most = most_bytes(lane);
  if (buffer_ && filled_ == most) return false;
  if (!channel_.front_slice()) {
    if (channel_.has_ended()) channel_.refuse("sent less than was agreed");
    return false;
  }
  if (!buffer_) {
    buffer_ = lane.take_buffer(Way::in);
    if (!buffer_) return false;
    std::copy(pieces_.begin(), pieces_.end(), buffer_.get());
    filled_ = pieces_.size();
  }
  while (filled_ < most) {
    const InSlice* const slice = channel_.front_slice();
    if (!slice) break;
    const std::size_t count = std::min(most - filled_, slice->bytes.size() - used_);
    std::memcpy(buffer_.get() + filled_, slice->bytes.data() + used_, count);
    filled_ += count;
    used_ += count;
    if (used_ < slice->bytes.size()) break;
    channel_.pop_slice();
    used_ = 0;
  }
  return true;
}

// While the last batch is being unpacked, more may join the next one: a launch costs about as much as a slice's way.
bool UnpackedStream::unpack(Lane& lane) {
  if (!buffer_) return false;
  const Run& run = runs_[run_];
  const std::size_t count = filled_ / run.segment_bytes;
  if (count > 0 && filled_ < most_bytes(lane) && !batches_.empty()) return false;
  const std::size_t whole = count * run.segment_bytes;
  pieces_.assign(buffer_.get() + whole, buffer_.get() + filled_);
  const auto buffer = std::move(buffer_);
  buffer_ = nullptr;
  if (count == 0) return false;
  run.launch(next_, static_cast<std::int64_t>(count), lane.land(buffer.get(), whole));
  batches_.push_back({buffer, lane.mark()});
  next_ += static_cast<std::int64_t>(count);
  skip_empty_runs();
  return true;
}

bool UnpackedStream::finish() {
  if (total_bytes_ == 0) return true;
  if (run_ < runs_.size()) return false;
  if (channel_.front_slice()) channel_.refuse("sent more than was agreed");
  return channel_.has_ended();
}

}  // namespace shunt::device
