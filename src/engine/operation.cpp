#include "engine/operation.hpp"

#include <algorithm>

#include "core/fail.hpp"

namespace shunt {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::plan: return "plan";
    case OpKind::dispatch: return "dispatch";
    case OpKind::combine: return "combine";
    case OpKind::dispatch_backward: return "dispatch_backward";
    case OpKind::combine_backward: return "combine_backward";
    case OpKind::join: return "join";
    case OpKind::barrier: return "barrier";
    case OpKind::all_gather: return "all_gather";
    case OpKind::all_reduce: return "all_reduce";
    case OpKind::split: return "split";
    case OpKind::leave_out: return "leave_out";
  }
  return "unknown operation";
}

std::string title_of(std::string_view operation, std::string_view engine_name) {
  return engine_name.empty() ? std::string(operation) : fmt::format("{} of '{}'", operation, engine_name);
}

std::size_t Group::num_near() const {
  std::size_t count = 1;
  for_near_peers([&](RankId) { ++count; });
  return count;
}

RankId Group::rank_of(RankId member) const {
  // A world of all ranks of the transport numbers them alike.
  if (member.index() < members.size() && members[member.index()] == member) return member;
  const auto found = std::find(members.begin(), members.end(), member);
  return found == members.end() ? RankId() : RankId(static_cast<std::size_t>(found - members.begin()));
}

Operation::Operation(std::shared_ptr<const Group> group, std::uint64_t engine, const Announcement& announcement,
                     std::chrono::milliseconds deadline, std::string_view engine_name)
    : group_(std::move(group)),
      key_{engine, 0},
      announcement_(announcement),
      deadline_(deadline),
      engine_name_(engine_name) {}

std::string Operation::title() const {
  return title_of(fmt::format("{} #{}", to_string(announcement_.kind), key_.sequence), engine_name_);
}

void Operation::rethrow() const {
  if (phase() == Phase::failed) throw *error_;
}

SliceChannel& Operation::channel(RankId peer) const {
  const auto found =
      std::ranges::lower_bound(channels_, peer, {}, [](const SliceChannel* each) { return each->peer(); });
  SHUNT_CHECK(found != channels_.end() && (*found)->peer() == peer);
  return **found;
}

std::vector<RankId> Operation::awaited_far() const {
  std::vector<RankId> awaited;
  for (const SliceChannel* each : channels_)
    if (each->is_awaited()) awaited.push_back(each->peer());
  return awaited;
}

}  // namespace shunt
