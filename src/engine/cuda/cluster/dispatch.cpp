#include "engine/cuda/cluster/dispatch.hpp"

namespace shunt::device {

std::vector<std::byte*> ClusterDispatch::rows_by_rank(std::span<const Announcement> peers) {
  std::vector<std::byte*> rows;
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    rows.push_back(announced(RankId(rank), peers[rank], peers[rank].offset, in_.x.row_bytes()));
  return rows;
}

// One row for each token and far node; the forwarder there writes it into all its slots.
std::vector<PeerTraffic> ClusterDispatch::traffic() {
  TrafficByPeer traffic(1);
  const std::size_t row_bytes = in_.x.row_bytes();
  for (const OutFlowLists& flow : lists().out_flows)
    traffic.pack(
        flow.peer, 0,
        {flow.tokens.size, row_bytes, [&, row_bytes](std::int64_t first, std::int64_t count, std::byte* memory) {
           lane().launch(GatherRows{in_.x.data, list(flow.tokens) + first, memory, count, row_bytes});
         }});
  for (const InFlowLists& flow : lists().in_flows)
    traffic.unpack(
        flow.peer, 0,
        {flow.num_tokens, row_bytes, [&, row_bytes](std::int64_t first, std::int64_t count, std::byte* memory) {
           lane().launch(CopyRows{.x = before(memory, first, row_bytes),
                                  .out = table(),
                                  .segments = list(flow.rows) + flow.first_row_of(first),
                                  .num_segments = flow.num_rows_of(first, count),
                                  .row_bytes = row_bytes,
                                  .stop = nullptr});
         }});
  return traffic.take();
}

void ClusterDispatch::launch_near() {
  lane().launch(CopyRows{.x = in_.x.data,
                         .out = table(),
                         .segments = list(lists().near),
                         .num_segments = lists().near.size,
                         .row_bytes = in_.x.row_bytes(),
                         .stop = nullptr});
  zero_padding(in_.received.data, in_.x.row_bytes());
}

bool ClusterDispatch::finish() {
  if (in_.copy_into.bytes() == 0) return true;
  if (!copied_) {
    lane().launch(CopyBytes{in_.received.data, in_.copy_into.data, in_.copy_into.bytes()});
    copied_ = lane().mark();
  }
  return (*copied_)();
}

}  // namespace shunt::device
