#include "engine/cuda/cluster/shuffle.hpp"

namespace shunt::device {

ClusterShuffle::ClusterShuffle(const Context& context, const Announcement& announcement, Place place)
    : Shuffle(context, announcement), place_(std::move(place)) {
  // Two kinds of rows per rank, the parts of each flow, and one block of this rank.
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
  add_traffic();
  far_ = place_.turn ? make_nccl_route(std::move(place_.turn), std::move(traffic_))
                     : make_slice_route(std::move(traffic_));
}

Work ClusterShuffle::work() {
  // Far traffic first, so that the network is busy while near rows move.
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

void ClusterShuffle::release_after_fault() noexcept {
  lane().finish_after_error();  // launched kernels still access the caller's tensors
  for (const std::uint64_t offset : {announcement().offset, announcement().second_offset})
    if (offset != 0) lane().keep(offset);  // peers' kernels may still access it
}

bool ClusterShuffle::publish(const ConstTensor& rows, const Tensor& published) {
  if (published.data == rows.data) return false;
  lane().launch(CopyBytes{rows.data, published.data, rows.bytes()});
  return true;
}

PeerTraffic& ClusterShuffle::traffic_with(RankId peer) {
  for (PeerTraffic& known : traffic_)
    if (known.peer == peer) return known;
  return traffic_.emplace_back(PeerTraffic{peer, &channel(peer)});
}

Run ClusterShuffle::gather(const OutFlowLists& flow, const ConstTensor& x) {
  return {flow.tokens.size, x.row_bytes(), [&](std::int64_t first, std::int64_t count, std::byte* memory) {
            lane().launch(GatherRows{x.data, list(flow.tokens) + first, memory, count, x.row_bytes()});
          }};
}

void ClusterShuffle::scatter(const SegmentsByToken& segments, std::int64_t first, std::int64_t count,
                             const std::byte* memory, std::size_t segment_bytes, std::size_t row_bytes,
                             std::byte* const* out) {
  lane().launch(CopyRows{.x = before(memory, first, segment_bytes),
                         .out = out,
                         .segments = list(segments.all) + segments.begin_of(first),
                         .num_segments = segments.num_of(first, count),
                         .row_bytes = row_bytes,
                         .stop = nullptr});
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
