// What callers and the server thread do; progress_driver.cpp is what one of them at a time does.
#include "engine/progress.hpp"

#include <algorithm>
#include <utility>

#include "core/fail.hpp"
#include "core/start_thread.hpp"

namespace shunt {
namespace {

// A world that has not moved for this long gives freed memory back (docs/adr/0003).
constexpr std::chrono::milliseconds kIdleBeforeTrim{1000};
// How long the last signals may take to find room in a peer's mailbox before this rank leaves without sending them.
constexpr std::chrono::milliseconds kFarewell{2000};

}  // namespace

Progress::Progress(std::shared_ptr<Transport> transport, const SliceLimits& limits)
    : transport_(std::move(transport)),
      limits_(limits),
      backlog_(static_cast<std::size_t>(transport_->size())),
      table_(transport_->size()) {
  server_ = start_thread(fmt::format("the progress thread of rank {}", transport_->rank()), [this] { serve(); });
}

Progress::~Progress() {
  duty_->progress_is_gone_ = true;
  notify_server();
  transport_->wake();
  // The server may have dropped the last reference to an operation that kept all of this alive.
  if (std::this_thread::get_id() == server_.get_id())
    server_.detach();
  else
    server_.join();
  say_farewell();
}

void Progress::say_farewell() {
  const auto deadline = Clock::now() + kFarewell;
  for (flush_backlog(); backlog_size_ > 0 && Clock::now() < deadline; flush_backlog())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class Progress::Waiter {
 public:
  explicit Waiter(Progress& progress) : progress_(progress) { ++progress_.num_waiters_; }
  ~Waiter() {
    --progress_.num_waiters_;
    if (progress_.on_duty()) progress_.notify_server();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  Progress& progress_;
};

void Progress::add_ticket(const Operation& operation) {
  if (++num_tickets_ <= kMostTickets) return;
  --num_tickets_;
  fail(ErrorCode::invalid_argument, "rank {} called {} while it has {} tickets; wait for some or drop them first",
       transport_->rank(), to_string(operation.announcement().kind), kMostTickets);
}

void Progress::issue(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence) {
  if (const auto fault = transport_->fault())
    throw Error(fault->code, fmt::format("{}; rank {} called {}", fault->text, transport_->rank(),
                                         to_string(operation->announcement().kind)));
  const bool is_ready = operation->is_ready();  // may take its time, or throw: nothing is counted yet
  {
    const std::lock_guard lock(queue_mutex_);
    operation->key_.sequence = next_sequence++;
    issued_.push_back(operation);
    ++num_pending_;
    if (is_ready) announce(*operation);
  }
  // Somebody must see it: a waiter if there is one (its last act is to look for pending work), else the server.
  if (num_waiters_ == 0)
    notify_server();
  else
    transport_->wake();
}

void Progress::announce(Operation& operation) {
  operation.announced_at_ = Clock::now();
  operation.phase_.store(Phase::announced, std::memory_order_release);  // covers announced_at_; partner: phase()
  tell_near(operation, Signal::announce);
}

SignalRecord Progress::record_of(const Operation& operation, Signal signal) {
  const Announcement& a = operation.announcement();
  return {operation.key().engine, operation.key().sequence, signal, a.kind, 0, a.plan_hash, a.offset, a.bytes,
          a.second_offset};
}

void Progress::tell_near(const Operation& operation, Signal signal) {
  const Group& group = operation.group();
  const SignalRecord record = record_of(operation, signal);
  group.for_near_peers([&](RankId rank) { post(group.member(rank), record); });
}

void Progress::post(RankId peer, const SignalRecord& record) {
  auto& queue = backlog_[peer.index()];
  const bool overtakes_nobody = queue.empty();
  if (overtakes_nobody && transport_->post(peer, std::as_bytes(std::span(&record, 1))) == Post::posted) return;
  queue.push_back(record);
  ++backlog_size_;
}

void Progress::flush_backlog() {
  if (backlog_size_ == 0) return;
  const bool poisoned = transport_->fault().has_value();
  for (std::size_t peer = 0; peer < backlog_.size(); ++peer) {
    auto& queue = backlog_[peer];
    const bool nobody_listens = poisoned || transport_->has_left(RankId(peer));
    while (!queue.empty() &&
           (nobody_listens ||
            transport_->post(RankId(peer), std::as_bytes(std::span(&queue.front(), 1))) == Post::posted)) {
      queue.pop_front();
      --backlog_size_;
    }
  }
}

void Progress::wait(Operation& operation) {
  while (!wait_for(operation, std::chrono::hours(1))) {
  }
  operation.rethrow();
}

bool Progress::wait_for(Operation& operation, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const Waiter waiter(*this);
  while (!operation.done() && Clock::now() < deadline) {
    const std::uint32_t seen = transport_->observe();
    if (!try_advance() && !operation.done()) transport_->sleep(seen, std::min(nap_.load(), limit));
  }
  return operation.done();
}

void Progress::issue_and_wait(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence) {
  const Waiter waiter(*this);
  issue(operation, next_sequence);
  wait(*operation);
}

// Whoever fails to enter raises driver_contended_ and tries once more; so either that try succeeds, or the thread
// inside leaves later than the flag was raised, sees it, and wakes those who sleep.
bool Progress::try_advance() {
  // Destroyed last, outside the room: what operations keep alive is the caller's, and may end in here again.
  std::vector<std::shared_ptr<Operation>> finished;
  std::unique_lock room(driver_mutex_, std::try_to_lock);
  if (!room) {
    driver_contended_ = true;
    if (!room.try_lock()) return false;
  }
  bool moved = true;
  try {
    moved = advance();
  } catch (const std::exception& error) {
    transport_->report(ErrorCode::internal, transport_->rank(),
                       fmt::format("rank {} can't go on: {}", transport_->rank(), error.what()));
  }
  finished.swap(finished_);
  room.unlock();
  if (driver_contended_.exchange(false)) transport_->wake();
  return moved;
}

void Progress::serve() {
  // A copy: an operation that ends here may be the last that keeps this object alive.
  const std::shared_ptr<Duty> duty = duty_;
  while (!duty->progress_is_gone_) {
    wait_for_duty();
    while (!duty->progress_is_gone_) {
      const std::uint32_t seen = transport_->observe();
      // After observe(): whoever ends the duty rings later, and so ends the sleep.
      if (!on_duty()) break;
      const bool moved = try_advance();
      if (!moved && !duty->progress_is_gone_) transport_->sleep(seen, nap_.load());
    }
  }
}

void Progress::wait_for_duty() {
  std::unique_lock lock(duty_->mutex_);
  while (!duty_->progress_is_gone_ && !on_duty()) {
    if (!duty_->trim_due_) {
      duty_->changed_.wait(lock);
    } else if (duty_->changed_.wait_for(lock, kIdleBeforeTrim) == std::cv_status::timeout && num_pending_ == 0) {
      duty_->trim_due_ = false;
      lock.unlock();
      transport_->trim();
      lock.lock();
    }
  }
}

void Progress::Duty::note_release() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(trim_due_, true)) return;
  }
  changed_.notify_one();
}

void Progress::notify_server() {
  { const std::lock_guard lock(duty_->mutex_); }
  duty_->changed_.notify_one();
}

}  // namespace shunt
