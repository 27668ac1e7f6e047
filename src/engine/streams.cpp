#include "engine/streams.hpp"

#include "core/fail.hpp"

namespace shunt {

Streams::Streams(SliceLink& link, const Group& group, const Operation::Key& key,
                 const std::vector<Arrivals::Peer>& arrivals, const StreamLimits& limits,
                 std::atomic<std::uint64_t>& num_bytes_sent, PostGrant grant)
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

void Streams::welcome(RankId peer) { grant_(group_.member(peer), limits_.depth, limits_.slice_bytes); }

std::optional<OutSlice> Streams::open(RankId peer) {
  const Arrivals::Peer& theirs = arrivals_[group_.member(peer).index()];
  if (states_[peer.index()].num_posted >= theirs.granted) return std::nullopt;
  return link_.open(theirs.slice_bytes);
}

void Streams::post(RankId peer, OutSlice slice, std::size_t bytes, bool is_last) {
  const SliceTag tag{key_.engine, key_.sequence, states_[peer.index()].num_posted++, is_last};
  num_bytes_sent_ += bytes;
  link_.post(group_.member(peer), std::move(slice), bytes, tag);
}

void Streams::arrive(InSlice slice) {
  const std::int32_t from = world_rank_[slice.from.index()];
  if (from < 0) return;
  State& state = states_[static_cast<std::size_t>(from)];
  const std::uint32_t ahead = slice.tag.index - state.next;
  if (ahead >= limits_.depth || state.ended || slice.bytes.size() > limits_.slice_bytes)
    fail(ErrorCode::mismatch, "rank {} sent rank {} slice #{} of {} bytes, which was not granted", from, group_.self,
         slice.tag.index, slice.bytes.size());
  if (slice.tag.is_last) state.num_slices = slice.tag.index + 1;
  const std::uint32_t index = slice.tag.index;
  state.num_arrived += state.arrived.emplace(index, std::move(slice)).second;
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
  if (!state.ended) grant_(group_.member(peer), 1, limits_.slice_bytes);
}

}  // namespace shunt
