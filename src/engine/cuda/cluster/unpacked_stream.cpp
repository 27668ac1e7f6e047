#include "engine/cuda/cluster/unpacked_stream.hpp"

#include <algorithm>
#include <cstring>

namespace shunt::device {

UnpackedStream::UnpackedStream(Streams& streams, RankId peer, std::vector<Run> runs)
    : streams_(streams), peer_(peer), runs_(std::move(runs)) {
  for (const Run& run : runs_) total_bytes_ += static_cast<std::size_t>(run.num_segments) * run.segment_bytes;
  skip_empty_runs();
}

void UnpackedStream::skip_empty_runs() {
  for (; run_ < runs_.size() && next_ == runs_[run_].num_segments; ++run_) next_ = 0;
}

bool UnpackedStream::pump(Lane& lane) {
  while (!batches_.empty() && batches_.front().unpacked()) batches_.pop_front();
  bool moved = false;
  while (run_ < runs_.size() && unpack(lane)) moved = true;
  return moved;
}

bool UnpackedStream::unpack(Lane& lane) {
  if (!streams_.front(peer_)) {
    if (streams_.has_ended(peer_)) streams_.refuse(peer_, "sent less than was agreed");
    return false;
  }
  auto buffer = lane.take_buffer(Way::in);
  if (!buffer) return false;
  const Run& run = runs_[run_];
  const std::size_t most =
      std::min(lane.buffer_bytes() / run.segment_bytes, static_cast<std::size_t>(run.num_segments - next_));
  const std::size_t bytes = fill(buffer.get(), most * run.segment_bytes);
  const std::size_t whole = bytes / run.segment_bytes * run.segment_bytes;
  pieces_.assign(buffer.get() + whole, buffer.get() + bytes);
  if (whole == 0) return true;
  const auto count = static_cast<std::int64_t>(whole / run.segment_bytes);
  run.launch(next_, count, lane.land(buffer.get(), whole));
  batches_.push_back({std::move(buffer), lane.mark()});
  next_ += count;
  skip_empty_runs();
  return true;
}

std::size_t UnpackedStream::fill(std::byte* buffer, std::size_t most_bytes) {
  std::copy(pieces_.begin(), pieces_.end(), buffer);
  std::size_t filled = pieces_.size();
  while (filled < most_bytes) {
    const InSlice* const slice = streams_.front(peer_);
    if (!slice) break;
    const std::size_t count = std::min(most_bytes - filled, slice->bytes.size() - used_);
    std::memcpy(buffer + filled, slice->bytes.data() + used_, count);
    filled += count;
    used_ += count;
    if (used_ < slice->bytes.size()) break;
    streams_.pop(peer_);
    used_ = 0;
  }
  return filled;
}

bool UnpackedStream::finish() {
  if (total_bytes_ == 0) return true;
  if (run_ < runs_.size()) return false;
  if (streams_.front(peer_)) streams_.refuse(peer_, "sent more than was agreed");
  return streams_.has_ended(peer_);
}

}  // namespace shunt::device
