#include "engine/cuda/cluster/nccl_route.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace shunt::device {

NcclRoute::NcclRoute(std::unique_ptr<NcclNetwork::Turn> turn, std::vector<PeerTraffic> traffic)
    : network_(turn->network()), turn_(std::move(turn)), peers_(std::move(traffic)) {
  for (const PeerTraffic& peer : peers_) {
    num_runs_ = std::max(num_runs_, peer.out.size());
    peer.channel->begin_sending();
    peer.channel->begin_receiving();
  }
}

bool NcclRoute::has_started() const {
  // Once connections stand NCCL needs microseconds; a nap would be a millisecond in every round.
  constexpr std::chrono::microseconds kMostSpin{50};
  const auto end = std::chrono::steady_clock::now() + kMostSpin;
  while (!network_->is_idle()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}

NcclRoute::Batch NcclRoute::batch_of(const Run& run) const {
  if (run.num_segments == 0) return {};
  const auto most = static_cast<std::int64_t>(network_->batch_bytes() / run.segment_bytes);
  const std::int64_t first = std::min(round_ * most, run.num_segments);
  return {first, std::min(most, run.num_segments - first)};
}

Work NcclRoute::pump(Lane& lane) {
  if (is_over()) {
    (void)network_->is_idle();  // throws if what was launched has failed: nothing else would tell
    return Work::soon;
  }
  if (!turn_->has_come() || !are_all_here()) return Work::idle;
  if (is_exchanging_) {
    if (!has_started()) return Work::soon;
    unpack();
    is_exchanging_ = false;
    ++round_;
  }
  while (run_ < num_runs_ && !is_exchanging_) {
    is_exchanging_ = begin_round(lane);
    if (is_exchanging_) continue;
    ++run_;
    round_ = 0;
  }
  if (run_ == num_runs_) turn_.reset();
  return Work::moved;
}

bool NcclRoute::are_all_here() const {
  return std::ranges::all_of(peers_, [&](const PeerTraffic& peer) { return peer.channel->room() > 0; });
}

bool NcclRoute::begin_round(Lane& lane) {
  std::vector<NcclNetwork::Transfer> sends, receives;
  for (const PeerTraffic& peer : peers_) {
    const Run& out = peer.out[run_];
    if (const Batch batch = batch_of(out); batch.count > 0) {
      std::byte* const memory = network_->batch_to(peer.peer);
      out.launch(batch.first, batch.count, memory);
      sends.push_back({peer.peer, memory, static_cast<std::size_t>(batch.count) * out.segment_bytes});
    }
    const Run& in = peer.in[run_];
    if (const Batch batch = batch_of(in); batch.count > 0)
      receives.push_back(
          {peer.peer, network_->batch_from(peer.peer), static_cast<std::size_t>(batch.count) * in.segment_bytes});
  }
  if (sends.empty() && receives.empty()) return false;
  turn_->exchange(sends, receives, lane.stream());
  return true;
}

void NcclRoute::unpack() {
  for (const PeerTraffic& peer : peers_) {
    const Run& in = peer.in[run_];
    if (const Batch batch = batch_of(in); batch.count > 0)
      in.launch(batch.first, batch.count, network_->batch_from(peer.peer));
  }
}

bool NcclRoute::finish() {
  bool is_finished = true;
  for (const PeerTraffic& peer : peers_) {
    SliceChannel& channel = *peer.channel;
    if (channel.is_sending() && channel.room() > 0) channel.post_slice({}, 0, true);
    if (const InSlice* const farewell = channel.front_slice()) {
      if (!farewell->bytes.empty() || !farewell->tag.is_last) channel.refuse("sent rows beside NCCL");
      channel.pop_slice();
    }
    is_finished = is_finished && !channel.is_sending() && channel.has_ended();
  }
  return is_finished;
}

}  // namespace shunt::device
