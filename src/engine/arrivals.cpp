#include "engine/arrivals.hpp"

#include <algorithm>

namespace shunt {

bool Arrivals::Peer::grant(std::uint64_t num_slices, std::uint64_t bytes_each) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  if (num_slices == 0 || num_slices > kMost || bytes_each == 0 || bytes_each > kMost) return false;
  if (granted > 0 && (bytes_each != slice_bytes || granted + num_slices > most_granted())) return false;
  if (granted == 0) first_grant = static_cast<std::uint32_t>(num_slices);
  granted += static_cast<std::uint32_t>(num_slices);
  slice_bytes = bytes_each;
  return true;
}

Arrivals::Entry& Arrivals::entry(const Operation::Key& key) {
  Entry& found = by_operation_[key];
  if (found.peers.empty()) found.peers.resize(num_kept_for_.size());
  return found;
}

bool Arrivals::keep_for(RankId rank, Peer& peer) {
  if (peer.is_kept_for) return true;
  peer.is_kept_for = true;
  return ++num_kept_for_[rank.index()] <= kMostPending;
}

void Arrivals::let_go(std::size_t rank, Peer& peer) {
  if (!peer.is_kept_for) return;
  peer.is_kept_for = false;
  --num_kept_for_[rank];
}

std::vector<Arrivals::Peer>& Arrivals::of(const Operation::Key& key) {
  Entry& own = entry(key);
  if (own.stage == Stage::ahead) {
    own.stage = Stage::under_way;
    for (std::size_t rank = 0; rank < own.peers.size(); ++rank) let_go(rank, own.peers[rank]);
  }
  return own.peers;
}

Arrivals::Peer* Arrivals::hear(RankId from, const Operation::Key& key) {
  if (num_kept_for_[from.index()] >= kMostPending && !by_operation_.contains(key)) return nullptr;
  Entry& heard = entry(key);
  Peer& peer = heard.peers[from.index()];
  if (heard.stage == Stage::ahead && !keep_for(from, peer)) return nullptr;
  return &peer;
}

void Arrivals::settle(const Operation::Key& key) {
  const auto found = by_operation_.find(key);
  if (found == by_operation_.end() || found->second.stage != Stage::over) return;
  auto& peers = found->second.peers;
  for (std::size_t rank = 0; rank < peers.size(); ++rank)
    if (peers[rank].has_granted_all()) let_go(rank, peers[rank]);
  if (std::ranges::none_of(peers, [](const Peer& peer) { return peer.is_kept_for; })) by_operation_.erase(found);
}

std::optional<RankId> Arrivals::complete(const Operation::Key& key, std::span<const RankId> far_partners) {
  Entry& own = entry(key);
  own.stage = Stage::over;
  std::optional<RankId> debtor;
  for (const RankId rank : far_partners)
    if (Peer& peer = own.peers[rank.index()]; !peer.has_granted_all() && !keep_for(rank, peer)) debtor = rank;
  settle(key);
  return debtor;
}

}  // namespace shunt
