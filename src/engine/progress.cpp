// Issuing, waiting and the server thread; progress_driver.cpp has what the one driving thread does.
#include "engine/progress.hpp"

#include <algorithm>
#include <utility>

#include "core/fail.hpp"
#include "core/start_thread.hpp"

namespace shunt {
namespace {

// Freed memory is returned to the system after this long without operations (docs/adr/0003).
constexpr std::chrono::milliseconds kIdleBeforeTrim{1000};
// How long the last signals may wait for room in peers' mailboxes before this rank leaves without sending them.
constexpr std::chrono::milliseconds kDrainLimit{2000};

}  // namespace

Progress::Progress(std::shared_ptr<Transport> transport, const SliceLimits& limits)
    : transport_(std::move(transport)),
      limits_(limits),
      backlog_(static_cast<std::size_t>(transport_->size())),
      table_(transport_->size()) {
  server_ = start_thread(fmt::format("the progress thread of rank {}", transport_->rank()), [this] { serve(); });
}

Progress::~Progress() {
  server_state_->progress_is_gone_ = true;
  notify_server();
  transport_->wake();
  // The server may have dropped the last reference to an operation that kept all of this alive.
  if (std::this_thread::get_id() == server_.get_id())
    server_.detach();
  else
    server_.join();
  drain_backlog();
}

void Progress::drain_backlog() {
  const auto deadline = Clock::now() + kDrainLimit;
  for (flush_backlog(); backlog_size_ > 0 && Clock::now() < deadline; flush_backlog())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Progress::add_ticket(OpKind kind) {
  if (++num_tickets_ <= kMostTickets) return;
  --num_tickets_;
  fail(ErrorCode::invalid_argument, "rank {} called {} while it has {} tickets; wait for some or drop them first",
       transport_->rank(), to_string(kind), kMostTickets);
}

void Progress::issue(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence) {
  if (const auto fault = transport_->fault())
    throw Error(fault->code, fmt::format("{}; rank {} called {}", fault->text, transport_->rank(),
                                         to_string(operation->announcement().kind)));
  const bool is_ready = operation->is_ready();  // may take long, or throw, so before anything is counted
  {
    const std::lock_guard lock(queue_mutex_);
    operation->key_.sequence = next_sequence++;
    issued_.push_back(operation);
    ++num_pending_;
    if (is_ready) announce(*operation);
  }
  // A waiter picks it up if there is one (Waiter's destructor checks for pending work), else the server thread.
  if (num_waiters_ == 0)
    notify_server();
  else
    transport_->wake();
}

void Progress::announce(Operation& operation) {
  operation.announced_at_ = Clock::now();
  operation.phase_.store(Phase::announced, std::memory_order_release);  // covers announced_at_; partner: phase()
  signal_near(operation, Signal::announce);
}

SignalRecord Progress::record_of(const Operation& operation, Signal signal) {
  const Announcement& a = operation.announcement();
  return {operation.key().engine, operation.key().sequence, signal, a.kind, 0, a.plan_hash, a.offset, a.bytes,
          a.second_offset};
}

void Progress::signal_near(const Operation& operation, Signal signal) {
  const Group& group = operation.group();
  const SignalRecord record = record_of(operation, signal);
  group.for_near_peers([&](RankId rank) { post(group.member(rank), record); });
}

void Progress::post(RankId peer, const SignalRecord& record) {
  auto& queue = backlog_[peer.index()];
  const bool is_next = queue.empty();
  if (is_next && transport_->post(peer, std::as_bytes(std::span(&record, 1))) == Post::posted) return;
  queue.push_back(record);
  ++backlog_size_;
}

void Progress::flush_backlog() {
  if (backlog_size_ == 0) return;
  const bool poisoned = transport_->fault().has_value();
  for (std::size_t peer = 0; peer < backlog_.size(); ++peer) {
    auto& queue = backlog_[peer];
    const bool is_undeliverable = poisoned || transport_->has_left(RankId(peer));
    while (!queue.empty() &&
           (is_undeliverable ||
            transport_->post(RankId(peer), std::as_bytes(std::span(&queue.front(), 1))) == Post::posted)) {
      queue.pop_front();
      --backlog_size_;
    }
  }
}

void Progress::wait(Operation& operation) {
  drive_until([&] { return operation.done(); });
  operation.rethrow();
}

void Progress::issue_and_wait(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence) {
  const Waiter waiter(*this);
  issue(operation, next_sequence);
  wait(*operation);
}

// A thread that can't lock sets driver_contended_ and tries once more: either the second try succeeds, or the driver
// unlocks after the flag was set, sees it, and wakes sleepers.
bool Progress::try_advance() {
  // Destroyed after unlocking: operations own objects of the caller, whose destructors may call this function.
  std::vector<std::shared_ptr<Operation>> finished;
  std::unique_lock driving(driver_mutex_, std::try_to_lock);
  if (!driving) {
    driver_contended_ = true;
    if (!driving.try_lock()) return false;
  }
  bool moved = true;
  try {
    moved = advance();
  } catch (const std::exception& error) {
    transport_->report(ErrorCode::internal, transport_->rank(),
                       fmt::format("rank {} can't go on: {}", transport_->rank(), error.what()));
  }
  finished.swap(finished_);
  driving.unlock();
  if (driver_contended_.exchange(false)) transport_->wake();
  return moved;
}

void Progress::serve() {
  // A copy: an operation destroyed here may hold the last reference to this object.
  const std::shared_ptr<ServerState> state = server_state_;
  while (!state->progress_is_gone_) {
    wait_until_needed();
    while (!state->progress_is_gone_) {
      const std::uint32_t seen = transport_->observe();
      // After observe(): a change of needs_server() rings afterwards, and so ends the sleep.
      if (!needs_server()) break;
      const bool moved = try_advance();
      if (!moved && !state->progress_is_gone_) transport_->sleep(seen, sleep_limit_.load());
    }
  }
}

void Progress::wait_until_needed() {
  std::unique_lock lock(server_state_->mutex_);
  while (!server_state_->progress_is_gone_ && !needs_server()) {
    if (!server_state_->trim_due_) {
      server_state_->changed_.wait(lock);
    } else if (server_state_->changed_.wait_for(lock, kIdleBeforeTrim) == std::cv_status::timeout &&
               num_pending_ == 0) {
      server_state_->trim_due_ = false;
      lock.unlock();
      transport_->trim();
      lock.lock();
    }
  }
}

void Progress::ServerState::schedule_trim() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(trim_due_, true)) return;
  }
  changed_.notify_one();
}

void Progress::notify_server() {
  { const std::lock_guard lock(server_state_->mutex_); }
  server_state_->changed_.notify_one();
}

}  // namespace shunt
