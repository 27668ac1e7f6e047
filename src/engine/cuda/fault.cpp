#include "engine/cuda/fault.hpp"

#include <atomic>

#include "engine/call.hpp"
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
  const Call call{self, EngineKind::node, to_string(tag.kind), engine_name};
  const std::string operation = title_of(call.operation, engine_name);
  switch (cause) {
    case FaultRecord::deadline:
      call.fail(ErrorCode::deadline, "rank {} did not reach the barrier within {} ms; it was at barrier {} of {}",
                record.peer, deadline.count(), record.seen, record.expected);
    case FaultRecord::lost: watch.throw_loss(RankId(record.peer), operation);
    case FaultRecord::mismatch: {
      const Tag other = Tag::unpack(record.seen);
      if (other.phase == Phase::refused)
        call.fail(ErrorCode::peer_failed, "rank {} failed: {}", record.peer,
                  describe(BadEntry::unpack(record.expected)));
      fail(ErrorCode::mismatch, "rank {} called {}, rank {} {}{}", self, operation, record.peer, to_string(other.kind),
           difference(tag, other));
    }
    case FaultRecord::left_out:
      call.fail(ErrorCode::unsupported, "rank {} was left out, so only padded plans go on", record.peer);
    case FaultRecord::overflow:
      call.fail(ErrorCode::invalid_argument, "a rank would receive {} rows, more than max_rows = {}", record.seen,
                record.expected);
    case FaultRecord::routing: call.fail(ErrorCode::invalid_argument, "{}", describe(BadEntry::unpack(record.seen)));
    default: call.fail(ErrorCode::internal, "fault {} is not known", static_cast<std::uint32_t>(cause));
  }
}

}  // namespace shunt::device
