#include "engine/shuffle.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"

namespace shunt {

std::byte* Shuffle::peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const {
  return transport_.peer_pointer(group().member(rank), offset, bytes);
}

std::byte* Shuffle::announced_block(RankId rank, const Announcement& peer, std::size_t expected_bytes,
                                    std::uint64_t Announcement::*offset) const {
  if (!group().is_near(rank)) return nullptr;
  if (offset == &Announcement::offset && peer.bytes != expected_bytes)
    fail_because_of(group().member(rank), "rank {} announced {} bytes for {} #{}, rank {} expected {}", rank,
                    peer.bytes, to_string(peer.kind), key().sequence, group().self, expected_bytes);
  return expected_bytes == 0 ? nullptr : peer_pointer(rank, peer.*offset, expected_bytes);
}

void Shuffle::append_rows(std::vector<std::byte*>& rows, std::span<const Announcement> peers,
                          std::uint64_t Announcement::*offset, std::size_t row_bytes) const {
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    rows.push_back(announced_block(RankId(rank), peers[rank],
                                   static_cast<std::size_t>(plan_->rows_of_rank[rank]) * row_bytes, offset));
}

std::vector<RankId> Shuffle::far_partners() const {
  std::vector<RankId> partners;
  for (const OutFlow& flow : plan_->out_flows) partners.push_back(flow.forwarder);
  for (const InFlow& flow : plan_->in_flows) partners.push_back(flow.source);
  // Every rank compares its call with its counterparts on other nodes, even where no rows flow between them.
  const Topology& topology = plan_->topology;
  for (std::int32_t r = 0; r < topology.num_ranks(); ++r) {
    const RankId rank(r);
    if (plan_->is_near(rank)) continue;
    if (topology.counterpart(plan_->self, topology.node(rank)) == rank ||
        topology.counterpart(rank, topology.node(plan_->self)) == plan_->self)
      partners.push_back(rank);
  }
  return partners;
}

std::vector<FlowCursor<OutFlow>> Shuffle::out_flows() const {
  std::vector<FlowCursor<OutFlow>> cursors;
  for (const OutFlow& flow : plan_->out_flows) cursors.push_back({&flow, &channel(flow.forwarder)});
  return cursors;
}

std::vector<FlowCursor<InFlow>> Shuffle::in_flows() const {
  std::vector<FlowCursor<InFlow>> cursors;
  for (const InFlow& flow : plan_->in_flows)
    if (!flow.tokens.empty()) cursors.push_back({&flow, &channel(flow.source)});
  return cursors;
}

std::int64_t Shuffle::end_of_chunk(std::int64_t begin, std::size_t bytes_per_token) const {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  if (!has_flows()) return plan_->num_tokens;
  const auto tokens = static_cast<std::int64_t>(kChunkBytes / std::max<std::size_t>(bytes_per_token, 1)) + 1;
  return std::min(plan_->num_tokens, begin + tokens);
}

void zero_padding(const PlanData& plan, std::byte* rows, std::size_t row_bytes) {
  for_each_padding(plan, [&](std::int64_t begin, std::int64_t end) {
    std::memset(rows + static_cast<std::size_t>(begin) * row_bytes, 0,
                static_cast<std::size_t>(end - begin) * row_bytes);
  });
}

}  // namespace shunt
