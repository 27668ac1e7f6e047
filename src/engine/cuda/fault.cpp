#include "engine/cuda/fault.hpp"

#include <atomic>

#include "core/fail.hpp"
#include "engine/cuda/tag.hpp"

namespace shunt::device {
namespace {

std::string describe(const BadEntry& entry) {
  return fmt::format("token {}: expert {} is out of range or named twice", entry.token, entry.expert);
}

/// How a peer's call differs from this rank's; continues after the name of the peer's.
std::string_view difference(const Tag& ours, const Tag& theirs) {
  if (theirs.kind != ours.kind) return "";
  if (theirs.plan_hash == ours.plan_hash) return " in a graph that does not hold the same operations";
  return ours.kind == OpKind::plan ? " with another map or other options" : " with another plan";
}

}  // namespace

FaultRecord::Cause cause_of(const FaultRecord& record) {
  // The acquire's partner is the fence before the cause in report().
  const std::atomic_ref cause(const_cast<std::uint32_t&>(record.cause));
  return static_cast<FaultRecord::Cause>(cause.load(std::memory_order_acquire));
}

void throw_if_faulty(const FaultRecord& record, const Watchdog::Watch& watch, RankId self,
                     std::chrono::milliseconds deadline, std::string_view engine_name) {
  const FaultRecord::Cause cause = cause_of(record);
  if (cause == FaultRecord::none) return;
  const Tag tag = Tag::unpack(record.tag);
  const std::string operation = title_of(to_string(tag.kind), engine_name);
  switch (cause) {
    case FaultRecord::deadline:
      fail(ErrorCode::deadline,
           "rank {}: {}: rank {} did not reach the barrier within {} ms; it was at barrier {} of {}", self, operation,
           record.peer, deadline.count(), record.seen, record.expected);
    case FaultRecord::lost: watch.throw_loss(RankId(record.peer), operation);
    case FaultRecord::mismatch: {
      const Tag other = Tag::unpack(record.seen);
      if (other.phase == Phase::refused)
        fail(ErrorCode::peer_failed, "rank {}: {}: rank {} failed: {}", self, operation, record.peer,
             describe(BadEntry::unpack(record.expected)));
      fail(ErrorCode::mismatch, "rank {} called {}, rank {} {}{}", self, operation, record.peer, to_string(other.kind),
           difference(tag, other));
    }
    case FaultRecord::left_out:
      fail(ErrorCode::unsupported, "rank {}: {}: rank {} was left out, so only padded plans go on", self, operation,
           record.peer);
    case FaultRecord::overflow:
      fail(ErrorCode::invalid_argument, "rank {}: {}: a rank would receive {} rows, more than max_rows = {}", self,
           operation, record.seen, record.expected);
    case FaultRecord::routing:
      fail(ErrorCode::invalid_argument, "rank {}: {}: {}", self, operation, describe(BadEntry::unpack(record.seen)));
    default:
      fail(ErrorCode::internal, "rank {}: {}: fault {} is not known", self, operation,
           static_cast<std::uint32_t>(cause));
  }
}

}  // namespace shunt::device
