#include <algorithm>
#include <cstring>
#include <deque>

#include "engine/cuda/cluster/far_route.hpp"

namespace shunt::device {
namespace {

/// Progress of packing or unpacking a peer's runs.
class RunCursor {
 public:
  explicit RunCursor(std::array<Run, 2> runs) : runs_(std::move(runs)) { skip_empty_runs(); }

  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] bool is_over() const { return index_ == runs_.size(); }
  [[nodiscard]] bool answers() const { return runs_[index_].answers; }
  [[nodiscard]] std::size_t segment_bytes() const { return runs_[index_].segment_bytes; }
  /// Number of the run's remaining segments that fit into `bytes`.
  [[nodiscard]] std::size_t most_in(std::size_t bytes) const {
    return std::min(bytes / segment_bytes(), static_cast<std::size_t>(runs_[index_].num_segments - next_));
  }
  void launch(std::size_t count, std::byte* memory) {
    runs_[index_].launch(next_, static_cast<std::int64_t>(count), memory);
    next_ += static_cast<std::int64_t>(count);
    skip_empty_runs();
  }

 private:
  void skip_empty_runs() {
    for (; !is_over() && next_ == runs_[index_].num_segments; ++index_) next_ = 0;
  }

  std::array<Run, 2> runs_;
  std::size_t index_ = 0;
  std::int64_t next_ = 0;  // segment of the current run
};

/// Sends runs to one far rank: kernels pack batches into host buffers, which are sent as slices. A batch is packed only
/// when the peer has granted room for it, so no buffer waits for a peer that is in another operation (docs/adr/0005).
/// Slices end where segments end, unless a segment is larger than a slice.
class SlicePacker {
 public:
  SlicePacker(SliceChannel& channel, std::array<Run, 2> runs) : channel_(channel), runs_(std::move(runs)) {
    if (!runs_.is_over()) channel_.begin_sending();
  }

  /// Sends what is packed, and packs as much as there is room for; runs that answer only once the peer's runs before
  /// `current_run` suffice. True if something moved.
  bool pump(Lane& lane, std::size_t current_run) {
    bool moved = false;
    while (!batches_.empty() && batches_.front().packed() && send(batches_.front())) {
      batches_.pop_front();
      moved = true;
    }
    while (!runs_.is_over() && (!runs_.answers() || runs_.index() <= current_run) && pack(lane)) moved = true;
    return moved;
  }
  [[nodiscard]] bool is_finished() const { return runs_.is_over() && batches_.empty(); }

 private:
  struct Batch {
    std::shared_ptr<std::byte> buffer;
    Lane::Mark packed;
    std::size_t bytes;
    std::size_t bytes_per_slice;
    bool is_last;
    std::size_t bytes_sent = 0;
  };

  [[nodiscard]] std::size_t free_room() const {
    std::size_t promised = 0;
    for (const Batch& batch : batches_)
      promised += (batch.bytes - batch.bytes_sent + batch.bytes_per_slice - 1) / batch.bytes_per_slice;
    const std::size_t room = channel_.room();
    return room - std::min(room, promised);
  }

  // A launch costs about as much as sending a slice, so it waits for room for a whole batch or half of the channel. The
  // room will come, because the peer reads everything that it is sent.
  bool pack(Lane& lane) {
    const std::size_t room = free_room();
    if (room == 0) return false;
    const std::size_t slice = channel_.slice_bytes(), segment = runs_.segment_bytes();
    const std::size_t per_slice = slice / segment;
    std::size_t count = 1;
    if (per_slice > 0) {
      const std::size_t wanted = runs_.most_in(lane.buffer_bytes());
      const std::size_t half = std::max<std::size_t>(channel_.most_room() / 2, 1);
      if (room * per_slice < wanted && room < half) return false;
      count = std::min(wanted, room * per_slice);
    }
    auto buffer = lane.take_buffer(Way::out);
    if (!buffer) return false;
    runs_.launch(count, buffer.get());
    batches_.push_back({.buffer = std::move(buffer),
                        .packed = lane.mark(),
                        .bytes = count * segment,
                        .bytes_per_slice = per_slice == 0 ? slice : per_slice * segment,
                        .is_last = runs_.is_over()});
    return true;
  }

  bool send(Batch& batch) {
    while (batch.bytes_sent < batch.bytes) {
      if (channel_.room() == 0) return false;
      const std::size_t bytes = std::min(batch.bytes_per_slice, batch.bytes - batch.bytes_sent);
      const std::span slice(batch.buffer.get() + batch.bytes_sent, bytes);
      batch.bytes_sent += bytes;
      channel_.post_slice({slice, batch.buffer}, bytes, batch.is_last && batch.bytes_sent == batch.bytes);
    }
    return true;
  }

  SliceChannel& channel_;
  RunCursor runs_;
  std::deque<Batch> batches_;
};

/// Receives runs from one far rank: slices, however they are cut, are copied into host buffers, which kernels unpack.
/// It holds no buffer while it waits for the peer's next segment. Once a part of one is here, it holds one until the
/// rest is, which the peer has packed already: a slow peer keeps a buffer from others, but none waits in a circle.
class SliceUnpacker {
 public:
  SliceUnpacker(SliceChannel& channel, std::array<Run, 2> runs)
      : channel_(channel), runs_(std::move(runs)), has_nothing_(runs_.is_over()) {
    if (!has_nothing_) channel_.begin_receiving();
  }

  /// Unpacks what has arrived. True if something moved.
  bool pump(Lane& lane) {
    while (!batches_.empty() && batches_.front().unpacked()) batches_.pop_front();
    bool moved = false;
    while (!runs_.is_over()) {
      moved |= take(lane);
      if (!unpack(lane)) break;
      moved = true;
    }
    return moved;
  }
  /// The run of the next segments; unpacking of all before it is launched.
  [[nodiscard]] std::size_t current_run() const { return runs_.index(); }
  /// True once everything is launched and the peer has sent its last slice. Throws PeerError if it sends more.
  bool finish() {
    if (has_nothing_) return true;
    if (!runs_.is_over()) return false;
    if (channel_.front_slice()) channel_.refuse("sent more than was agreed");
    return channel_.has_ended();
  }

 private:
  struct Batch {
    std::shared_ptr<std::byte> buffer;
    Lane::Mark unpacked;
  };

  /// Size of the next batch once it is complete.
  [[nodiscard]] std::size_t most_bytes(const Lane& lane) const {
    return runs_.most_in(lane.buffer_bytes()) * runs_.segment_bytes();
  }

  /// Copies arrived slices into the buffer.
  bool take(Lane& lane) {
    const std::size_t most = most_bytes(lane);
    if (buffer_ && filled_ == most) return false;
    if (!channel_.front_slice()) {
      if (channel_.has_ended()) channel_.refuse("sent less than was agreed");
      return false;
    }
    if (!buffer_) buffer_ = lane.take_buffer(Way::in);
    if (!buffer_) return false;
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
    if (filled_ == 0) buffer_ = nullptr;
    return true;
  }

  // While a batch is being unpacked, the next one may grow: a launch costs about as much as receiving a slice.
  bool unpack(Lane& lane) {
    if (filled_ == 0 || filled_ % runs_.segment_bytes() != 0) return false;
    if (filled_ < most_bytes(lane) && !batches_.empty()) return false;
    const auto buffer = std::exchange(buffer_, nullptr);
    const std::size_t bytes = std::exchange(filled_, 0);
    runs_.launch(bytes / runs_.segment_bytes(), lane.land(buffer.get(), bytes));
    batches_.push_back({buffer, lane.mark()});
    return true;
  }

  SliceChannel& channel_;
  RunCursor runs_;
  bool has_nothing_;
  std::size_t used_ = 0;               // bytes of the front slice
  std::shared_ptr<std::byte> buffer_;  // of the next batch
  std::size_t filled_ = 0;             // bytes of buffer_
  std::deque<Batch> batches_;          // being unpacked
};

class SliceRoute final : public FarRoute {
 public:
  explicit SliceRoute(std::vector<PeerTraffic> traffic) {
    for (PeerTraffic& each : traffic)
      peers_.push_back(
          {SlicePacker(*each.channel, std::move(each.out)), SliceUnpacker(*each.channel, std::move(each.in))});
  }

  Work pump(Lane& lane) override {
    bool moved = false;
    for (Peer& peer : peers_) {
      moved |= peer.in.pump(lane);
      moved |= peer.out.pump(lane, peer.in.current_run());
    }
    return moved ? Work::moved : Work::idle;
  }
  bool is_all_launched() override {
    return std::ranges::all_of(peers_, [](Peer& peer) { return peer.in.finish(); });
  }
  bool finish() override {
    return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.out.is_finished(); });
  }

 private:
  struct Peer {
    SlicePacker out;
    SliceUnpacker in;
  };
  std::vector<Peer> peers_;
};

}  // namespace

std::unique_ptr<FarRoute> make_slice_route(std::vector<PeerTraffic> traffic) {
  return std::make_unique<SliceRoute>(std::move(traffic));
}

}  // namespace shunt::device
