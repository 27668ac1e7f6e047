#include "engine/operation_table.hpp"

#include <algorithm>

namespace shunt {

bool OperationTable::keep(RankId rank, Peer& peer) {
  if (peer.is_kept_for) return true;
  peer.is_kept_for = true;
  return ++num_kept_for_[rank.index()] <= kMostKept;
}

void OperationTable::release(RankId rank, Peer& peer) {
  if (!peer.is_kept_for) return;
  peer.is_kept_for = false;
  --num_kept_for_[rank.index()];
}

OperationTable::Entry& OperationTable::start(std::shared_ptr<Operation> operation) {
  Entry& own = by_key_[operation->key()];
  own.operation = std::move(operation);
  own.order = num_started_++;
  for (auto& [rank, peer] : own.peers) release(rank, peer);
  return own;
}

OperationTable::Entry* OperationTable::find(const Operation::Key& key) {
  const auto found = by_key_.find(key);
  return found == by_key_.end() || !found->second.operation ? nullptr : &found->second;
}

OperationTable::Entry* OperationTable::entry_for(RankId from, const Operation::Key& key) {
  auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    if (num_kept_for_[from.index()] >= kMostKept) return nullptr;
    found = by_key_.try_emplace(key).first;
  }
  Entry& entry = found->second;
  Peer& peer = entry.peers[from];
  const bool is_ahead = !entry.operation && !entry.is_over;
  return is_ahead && !keep(from, peer) ? nullptr : &entry;
}

void OperationTable::settle(const Operation::Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || !found->second.is_over) return;
  bool is_kept = false;
  for (auto& [rank, peer] : found->second.peers) {
    if (peer.channel && peer.channel->has_granted_all()) release(rank, peer);
    is_kept |= peer.is_kept_for;
  }
  if (!is_kept) by_key_.erase(found);
}

std::optional<RankId> OperationTable::complete(const Operation::Key& key) {
  Entry& own = by_key_.at(key);
  own.operation.reset();
  own.is_over = true;
  std::optional<RankId> debtor;
  for (auto& [rank, peer] : own.peers)
    if (peer.is_partner && peer.channel && !peer.channel->has_granted_all() && !keep(rank, peer)) debtor = rank;
  settle(key);
  return debtor;
}

std::vector<OperationTable::Entry*> OperationTable::live() {
  std::vector<Entry*> live;
  for (auto& [key, entry] : by_key_)
    if (entry.operation) live.push_back(&entry);
  std::ranges::sort(live, {}, [](const Entry* entry) { return entry->order; });
  return live;
}

}  // namespace shunt
