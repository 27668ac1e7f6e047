#include "engine/cuda/cluster/nccl_route.hpp"

#include <algorithm>

namespace shunt::device {

NcclRoute::NcclRoute(std::unique_ptr<NcclNetwork::Turn> turn, Streams& streams, std::vector<PeerTraffic> traffic)
    : network_(turn->network()), turn_(std::move(turn)), streams_(streams) {
  for (PeerTraffic& each : traffic) {
    num_runs_ = std::max(num_runs_, each.out.size());
    peers_.push_back({.traffic = std::move(each)});
  }
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
    if (!network_->is_idle()) return Work::soon;
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
  return std::ranges::all_of(peers_, [&](const Peer& peer) { return streams_.room(peer.traffic.peer) > 0; });
}

bool NcclRoute::begin_round(Lane& lane) {
  std::vector<NcclNetwork::Transfer> sends, receives;
  for (const Peer& peer : peers_) {
    const Run& out = peer.traffic.out[run_];
    if (const Batch batch = batch_of(out); batch.count > 0) {
      std::byte* const memory = network_->batch_to(peer.traffic.peer);
      out.launch(batch.first, batch.count, memory);
      sends.push_back({peer.traffic.peer, memory, static_cast<std::size_t>(batch.count) * out.segment_bytes});
    }
    const Run& in = peer.traffic.in[run_];
    if (const Batch batch = batch_of(in); batch.count > 0)
      receives.push_back({peer.traffic.peer, network_->batch_from(peer.traffic.peer),
                          static_cast<std::size_t>(batch.count) * in.segment_bytes});
  }
  if (sends.empty() && receives.empty()) return false;
  turn_->exchange(sends, receives, lane.stream());
  return true;
}

void NcclRoute::unpack() {
  for (const Peer& peer : peers_) {
    const Run& in = peer.traffic.in[run_];
    if (const Batch batch = batch_of(in); batch.count > 0)
      in.launch(batch.first, batch.count, network_->batch_from(peer.traffic.peer));
  }
}

bool NcclRoute::finish() {
  bool is_finished = true;
  for (Peer& peer : peers_) {
    const RankId rank = peer.traffic.peer;
    if (!peer.is_told && streams_.room(rank) > 0) {
      streams_.post(rank, {}, 0, true);
      peer.is_told = true;
    }
    if (const InSlice* const farewell = streams_.front(rank)) {
      if (!farewell->bytes.empty() || !farewell->tag.is_last) streams_.refuse(rank, "sent rows beside NCCL");
      streams_.pop(rank);
    }
    is_finished = is_finished && peer.is_told && streams_.has_ended(rank);
  }
  return is_finished;
}

std::vector<RankId> NcclRoute::awaited() const {
  std::vector<RankId> ranks;
  for (const Peer& peer : peers_)
    if (const RankId rank = peer.traffic.peer; !peer.is_told || !streams_.is_all_here(rank)) ranks.push_back(rank);
  return ranks;
}

}  // namespace shunt::device
