#include "engine/cuda/cluster/dispatch.hpp"

#include <array>

namespace shunt::device {
namespace {

/// Runs of a far rank's traffic.
constexpr std::size_t kRows = 0;
constexpr std::size_t kScales = 1;

}  // namespace

// Once for all of a token's rows, so that no more than fp8 travels.
bool ClusterDispatch::prepare() {
  if (in_.to_quantise.rows == 0) return false;
  const std::array made{const_cast<std::byte*>(in_.x.data), const_cast<std::byte*>(in_.scales.data)};
  lane().write(table(), made);
  lane().launch(quantise_tokens(in_.to_quantise, table(), nullptr));
  return true;
}

std::vector<std::byte*> ClusterDispatch::rows_by_rank(std::span<const Announcement> peers) {
  std::vector<std::byte*> rows;
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    rows.push_back(announced(RankId(rank), peers[rank], peers[rank].offset, in_.x.row_bytes()));
  for (std::size_t rank = 0; has_scales() && rank < peers.size(); ++rank)
    rows.push_back(peer_rows(RankId(rank), peers[rank].second_offset, in_.scales.row_bytes()));
  return rows;
}

std::vector<PeerTraffic> ClusterDispatch::traffic() {
  TrafficByPeer traffic(2, false);
  add_run(traffic, kRows, in_.x, table());
  if (has_scales()) add_run(traffic, kScales, in_.scales, scales_table());
  return traffic.take();
}

// One row for each token and far node; the forwarder there writes it into all its slots.
void ClusterDispatch::add_run(TrafficByPeer& traffic, std::size_t index, const ConstTensor& x, std::byte* const* out) {
  const std::size_t row_bytes = x.row_bytes();
  for (const OutFlowLists& flow : lists().out_flows)
    traffic.pack(
        flow.peer, index,
        {flow.tokens.size, row_bytes, [&, row_bytes](std::int64_t first, std::int64_t count, std::byte* memory) {
           lane().launch(GatherRows{x.data, list(flow.tokens) + first, memory, count, row_bytes});
         }});
  for (const InFlowLists& flow : lists().in_flows)
    traffic.unpack(
        flow.peer, index,
        {flow.num_tokens, row_bytes, [&, row_bytes, out](std::int64_t first, std::int64_t count, std::byte* memory) {
           lane().launch(CopyRows{.x = before(memory, first, row_bytes),
                                  .out = out,
                                  .segments = list(flow.rows) + flow.first_row_of(first),
                                  .num_segments = flow.num_rows_of(first, count),
                                  .row_bytes = row_bytes,
                                  .stop = nullptr});
         }});
}

void ClusterDispatch::launch_near() {
  copy_near(in_.x, table(), in_.rows);
  if (has_scales()) copy_near(in_.scales, scales_table(), in_.row_scales);
}

void ClusterDispatch::copy_near(const ConstTensor& x, std::byte* const* out, const Output& output) {
  lane().launch(CopyRows{.x = x.data,
                         .out = out,
                         .segments = list(lists().near),
                         .num_segments = lists().near.size,
                         .row_bytes = x.row_bytes(),
                         .stop = nullptr});
  zero_padding(output.received.data, x.row_bytes());
}

bool ClusterDispatch::finish() {
  if (!copied_) {
    bool copies = false;
    for (const Output* output : {&in_.rows, &in_.row_scales}) {
      if (output->copy_into.bytes() == 0) continue;
      lane().launch(CopyBytes{output->received.data, output->copy_into.data, output->copy_into.bytes()});
      copies = true;
    }
    copied_ = copies ? lane().mark() : [] { return true; };
  }
  return (*copied_)();
}

}  // namespace shunt::device
