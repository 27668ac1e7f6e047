#include "engine/operation.hpp"

#include "engine/streams.hpp"

namespace shunt {

std::size_t Group::num_near() const {
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < members.size(); ++rank) count += is_near(rank) ? 1 : 0;
  return count;
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
