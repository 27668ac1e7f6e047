#include "engine/cuda/cluster/shuffle.hpp"

#include "core/fail.hpp"
#include "engine/cuda/cluster/nccl_route.hpp"
#include "engine/cuda/cluster/slice_route.hpp"

namespace shunt::device {

ClusterShuffle::ClusterShuffle(const Context& context, const Announcement& announcement, Place place)
    : Shuffle(context, announcement), place_(std::move(place)) {
  // Two kinds of rows of every rank, parts of every flow, and a block of this rank's own.
  const std::size_t entries = 2 * plan().wiring.hosts.size() + lists().out_flows.size() + 1;
  table_ = lane().allocate(entries * sizeof(std::byte*));
}

bool ClusterShuffle::is_ready() {
  if (!prepared_) {
    if (!place_.start()) return false;
    prepared_ = prepare() ? lane().mark() : [] { return true; };
  }
  return (*prepared_)();
}

void ClusterShuffle::begin(std::span<const Announcement> peers) {
  lane().write(table(), rows_by_rank(peers));
  if (!has_flows()) {
    place_.turn.reset();
    return;
  }
  auto far = traffic();
  for (PeerTraffic& each : far) each.channel = &channel(each.peer);
  if (place_.turn)
    far_ = std::make_unique<NcclRoute>(std::move(place_.turn), std::move(far));
  else
    far_ = std::make_unique<SliceRoute>(std::move(far));
}

Work ClusterShuffle::work() {
  // What travels far goes first, so that the network has something to do while near rows move.
  const Work far = far_ ? far_->pump(lane()) : Work::idle;
  bool moved = far == Work::moved;
  if (!std::exchange(has_launched_near_, true)) {
    launch_near();
    moved = true;
  }
  if (!last_ && (!far_ || far_->is_all_launched())) {
    launch_last();
    last_ = lane().mark();
    moved = true;
  }
  if (!last_ || !(*last_)() || (far_ && !far_->finish())) return moved ? Work::moved : far;
  far_.reset();  // near ranks may need long to finish, and other operations need the buffers
  return Work::finished;
}

void ClusterShuffle::give_up() noexcept {
  if (place_.nccl) place_.nccl->abort();
}

std::byte* ClusterShuffle::peer_rows(RankId rank, std::uint64_t offset, std::size_t row_bytes) const {
  const std::size_t bytes = static_cast<std::size_t>(plan().rows_of_rank[rank.index()]) * row_bytes;
  if (bytes == 0 || !group().is_near(rank)) return nullptr;
  return lane().peer_pointer(rank, offset, bytes);
}

std::byte* ClusterShuffle::announced(RankId rank, const Announcement& peer, std::uint64_t offset,
                                     std::size_t row_bytes) const {
  check_announced(rank, peer, static_cast<std::size_t>(plan().rows_of_rank[rank.index()]) * row_bytes);
  return peer_rows(rank, offset, row_bytes);
}

void ClusterShuffle::zero_padding(std::byte* rows, std::size_t row_bytes) {
  if (plan().options.layout != Layout::expert_major || plan().options.alignment == 1) return;
  lane().launch(ZeroPadding{.rows = rows,
                            .offsets = list(lists().expert_offsets),
                            .counts = list(lists().expert_counts),
                            .num_experts = plan().num_local_experts,
                            .row_bytes = row_bytes,
                            .stop = nullptr});
}

}  // namespace shunt::device
