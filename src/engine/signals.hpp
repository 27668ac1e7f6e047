// What an operation tells its peers, and which of them are near.
#pragma once

#include "engine/arrivals.hpp"
#include "engine/operation.hpp"

namespace shunt {

inline SignalRecord signal_record(const Operation& operation, Signal signal) {
  const Announcement& a = operation.announcement();
  return {operation.key().engine, operation.key().sequence, signal, a.kind, 0, a.plan_hash, a.offset, a.bytes,
          a.second_offset};
}

/// Calls visit(transport rank) for each near member but this rank.
template <class Visit>
void for_near_peers(const Operation& operation, const Visit& visit) {
  const Group& group = operation.group();
  for (std::size_t rank = 0; rank < group.members.size(); ++rank)
    if (group.is_near(rank) && RankId(rank) != group.self) visit(group.members[rank]);
}

}  // namespace shunt
