#include "engine/streams.hpp"

#include <algorithm>

#include "core/fail.hpp"

namespace shunt {

Streams::Streams(SliceLink& link, const Group& group, const Operation::Key& key, std::vector<Arrivals::Peer>& arrivals,
                 const StreamLimits& limits, std::atomic<std::uint64_t>& num_bytes_sent, PostGrant grant)
    : link_(link),
      group_(group),
      key_(key),
      arrivals_(arrivals),
      limits_(limits),
      num_bytes_sent_(num_bytes_sent),
      grant_(std::move(grant)),
      states_(group.members.size()),
      world_rank_(arrivals.size(), -1) {
  for (std::size_t rank = 0; rank < group.members.size(); ++rank)
    world_rank_[group.members[rank].index()] = static_cast<std::int32_t>(rank);
}

void Streams::welcome(RankId peer) { grant(peer, limits_.depth); }

void Streams::grant(RankId peer, std::uint32_t num_slices) {
  const RankId member = group_.member(peer);
  states_[peer.index()].num_granted += num_slices;
  link_.expect(member, num_slices, limits_.slice_bytes);
  grant_(member, num_slices, limits_.slice_bytes);
}

void Streams::close() {
  for (std::size_t rank = 0; rank < states_.size(); ++rank)
    if (const std::uint32_t unused = states_[rank].num_granted - states_[rank].num_arrived; unused > 0)
      link_.expect(group_.members[rank], -std::int64_t{unused}, limits_.slice_bytes);
}

void Streams::refuse(RankId peer, const std::string& text) const {
  fail_because_of(group_.member(peer), "rank {} {}", peer, text);
}

std::uint32_t Streams::room(RankId peer) const {
  const Arrivals::Peer& theirs = arrivals_[group_.member(peer).index()];
  return theirs.granted - theirs.num_posted;
}

std::uint32_t Streams::most_room(RankId peer) const { return arrivals_[group_.member(peer).index()].first_grant; }

std::size_t Streams::slice_bytes(RankId peer) const {
  // No larger than its own: what a peer grants says nothing of this rank's memory.
  return std::min<std::size_t>(arrivals_[group_.member(peer).index()].slice_bytes, limits_.slice_bytes);
}

std::optional<OutSlice> Streams::open(RankId peer) {
  if (room(peer) == 0) return std::nullopt;
  return link_.open(slice_bytes(peer));
}

void Streams::post(RankId peer, OutSlice slice, std::size_t bytes, bool is_last) {
  Arrivals::Peer& theirs = arrivals_[group_.member(peer).index()];
  const SliceTag tag{key_.engine, key_.sequence, theirs.num_posted++, is_last};
  theirs.has_posted_last = is_last;
  num_bytes_sent_ += bytes;
  link_.post(group_.member(peer), std::move(slice), bytes, tag);
}

void Streams::arrive(InSlice slice) {
  const std::int32_t from = world_rank_[slice.from.index()];
  if (from < 0)
    fail_because_of(slice.from, "rank {} sent a slice of an operation in which it takes no part", slice.from);
  State& state = states_[static_cast<std::size_t>(from)];
  if (!is_granted(state, slice))
    refuse(RankId(from), fmt::format("sent rank {} slice #{} of {} bytes, which was not granted", group_.self,
                                     slice.tag.index, slice.bytes.size()));
  if (slice.tag.is_last) state.num_slices = slice.tag.index + 1;
  ++state.num_arrived;
  const std::uint32_t index = slice.tag.index;
  state.arrived.emplace(index, std::move(slice));
}

bool Streams::is_granted(const State& state, const InSlice& slice) const {
  const std::uint32_t index = slice.tag.index;
  if (index < state.next || index >= state.num_granted || slice.bytes.size() > limits_.slice_bytes) return false;
  if (state.arrived.contains(index)) return false;
  if (state.num_slices != kUnknown) return index < state.num_slices && !slice.tag.is_last;
  return !slice.tag.is_last || state.arrived.empty() || index > state.arrived.rbegin()->first;
}

const InSlice* Streams::front(RankId peer) const {
  const State& state = states_[peer.index()];
  const auto found = state.arrived.find(state.next);
  return found == state.arrived.end() ? nullptr : &found->second;
}

void Streams::pop(RankId peer) {
  State& state = states_[peer.index()];
  const auto found = state.arrived.find(state.next++);
  SHUNT_CHECK(found != state.arrived.end());
  state.ended = found->second.tag.is_last;
  state.arrived.erase(found);
  if (!state.ended) grant(peer, 1);
}

}  // namespace shunt
