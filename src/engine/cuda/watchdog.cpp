#include "engine/cuda/watchdog.hpp"

#include <atomic>
#include <chrono>

#include "core/fail.hpp"
#include "core/start_thread.hpp"

namespace shunt::device {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    if (watches_.empty())
      changed_.wait(lock);
    else
      changed_.wait_for(lock, kBetweenLooks);
    for (Watch* const watch : watches_) watch->look();
  }
}

Watchdog::Watch::Watch(Watchdog& watchdog, std::shared_ptr<World::Impl> world, WatchdogWords watchdog_words)
    : watchdog_(watchdog),
      world_(std::move(world)),
      watchdog_words_(watchdog_words),
      is_left_out_(static_cast<std::size_t>(world_->group->size())) {
  const std::lock_guard lock(watchdog_.mutex_);
  if (!watchdog_.thread_.joinable())
    watchdog_.thread_ = start_thread("the thread that watches devices", [&dog = watchdog_] { dog.run(); });
  watchdog_.watches_.insert(this);
  watchdog_.changed_.notify_one();
}

Watchdog::Watch::~Watch() {
  const std::lock_guard lock(watchdog_.mutex_);
  watchdog_.watches_.erase(this);
}

void Watchdog::Watch::leave_out(const std::vector<bool>& ranks) {
  const std::lock_guard lock(watchdog_.mutex_);
  is_left_out_ = ranks;
  for (std::int32_t rank = 0; rank < world_->group->size(); ++rank)
    std::atomic_ref(watchdog_words_.lost(rank)).store(0, std::memory_order_relaxed);
}

std::optional<Fault> Watchdog::Watch::fault() const {
  auto fault = transport().fault();
  for (std::size_t rank = 0; fault && rank < is_left_out_.size(); ++rank)
    if (is_left_out_[rank] && world_->group->members[rank] == fault->culprit) fault.reset();
  return fault;
}

void Watchdog::Watch::look() {
  // A kernel sets it again as long as it waits, so nothing is lost between the two.
  const std::atomic_ref waits(watchdog_words_.waits());
  if (waits.load(std::memory_order_relaxed) == 0) return;
  waits.store(0, std::memory_order_relaxed);
  const Group& group = *world_->group;
  const bool is_over = fault().has_value();
  for (std::int32_t rank = 0; rank < group.size(); ++rank) {
    if (RankId(rank) == group.self || is_left_out_[RankId(rank).index()]) continue;
    const RankId peer = group.member(RankId(rank));
    // Release: the partner is the acquire in WaitDeadline::expired(), after which a signal of the peer from before is
    // seen.
    if (is_over || transport().is_gone(peer))
      std::atomic_ref(watchdog_words_.lost(rank)).store(1, std::memory_order_release);
    else
      transport().suspect(peer);
  }
}

void Watchdog::Watch::throw_loss(RankId rank, std::string_view operation) const {
  const RankId self = world_->group->self;
  const std::lock_guard lock(watchdog_.mutex_);
  if (const auto known = fault())
    throw Error(known->code, fmt::format("{}; rank {} waited for rank {} in {}", known->text, self, rank, operation));
  if (transport().has_left(world_->group->member(rank)))
    fail(ErrorCode::peer_lost, "rank {} has left the world, but rank {} still waited for it in {}", rank, self,
         operation);
  fail(ErrorCode::peer_lost, "rank {} is lost; rank {} waited for it in {}", rank, self, operation);
}

}  // namespace shunt::device
