#include "engine/operation.hpp"

#include "engine/streams.hpp"

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
    case OpKind::split: return "split";
  }
  return "unknown operation";
}

Operation::Operation(std::shared_ptr<const Group> group, std::uint64_t engine, const Announcement& announcement,
                     std::chrono::milliseconds deadline)
    : group_(std::move(group)), announcement_(announcement), deadline_(deadline) {
  key_.engine = engine;
}

Operation::~Operation() = default;

void Operation::rethrow() const {
  if (state_.load(std::memory_order_acquire) == State::failed) throw *error_;
}

}  // namespace shunt
