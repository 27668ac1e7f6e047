// Drives a process's operations: on the thread of whoever waits, or else on a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/operation_table.hpp"
#include "transport/transport.hpp"

namespace shunt {

/// One per transport; shared by all worlds and engines on it. All functions may be called from any thread.
class Progress {
 public:
  /// What the server thread sleeps on. Blocks share it, because the thread itself may free the last of them: a
  /// reference to more than this could make it destroy, and wait for, itself.
  class Duty {
   public:
    /// To be called when a block was freed: memory goes back to the machine once nothing has happened for a while.
    void note_release();

   private:
    friend class Progress;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool trim_due_ = false;
    std::atomic<bool> progress_is_gone_{false};
  };

  Progress(std::shared_ptr<Transport> transport, const SliceLimits& limits);
  /// Stops driving; operations still pending stay so.
  ~Progress();

  /// For each ticket that a caller holds. Throws Error(invalid_argument), and counts nothing, beyond kMostTickets:
  /// peers remember what a rank says of operations that they have not issued.
  void add_ticket(const Operation& operation);
  void remove_ticket() { --num_tickets_; }

  /// Announces the operation to its peers and returns; gives it the next place in `next_sequence`. Throws the world's
  /// fault if it is poisoned.
  void issue(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence);

  /// Drives until the operation is done; throws its error.
  void wait(Operation& operation);

  /// Drives until the operation is done, however it ended, or the limit has passed; true if it is done.
  bool wait_for(Operation& operation, std::chrono::milliseconds limit);

  /// Issues and waits, without a wake-up of the server.
  void issue_and_wait(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence);

  /// In slices to far ranks.
  [[nodiscard]] std::uint64_t num_bytes_sent() const { return num_bytes_sent_; }

  [[nodiscard]] const std::shared_ptr<Duty>& duty() const { return duty_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Entry = OperationTable::Entry;
  using Phase = Operation::Phase;

  // How often a waiting driver looks after silent peers and deadlines.
  static constexpr std::chrono::milliseconds kPatience{100};
  // The same while an operation must be asked (Work::soon).
  static constexpr std::chrono::milliseconds kSoon{1};

  /// A caller that drives; when the last one leaves, the server takes over what is still to do.
  class Waiter;

  // Posting. queue_mutex_ is held for moments only, so that issue() never waits for rows to move.
  void post(RankId peer, const SignalRecord& record);
  void announce(Operation& operation);
  void tell_near(const Operation& operation, Signal signal);
  [[nodiscard]] static SignalRecord record_of(const Operation& operation, Signal signal);
  void flush_backlog();
  void say_farewell();

  // Driving. driver_mutex_ is held while one thread polls, runs and completes operations.
  bool try_advance();
  bool advance();
  bool receive();
  bool receive_messages();
  bool receive_slices();
  void take(const Message& message);
  void start(std::shared_ptr<Operation> operation);
  /// The operation is stepped at the next advance().
  void enqueue(const std::shared_ptr<Operation>& operation);
  bool step_queued();
  /// Takes an operation through its phases as far as it comes now; queues it again unless a peer must act first.
  bool step(Entry& entry);
  bool announce_if_ready(Operation& operation);
  bool begin(Entry& entry);
  bool work(Entry& entry);
  bool finish(Entry& entry);
  void open_channels(Entry& entry);
  /// The operation under way counts on what this peer, a rank of the transport, says.
  void add_partner(Entry& entry, RankId member);
  /// Runs a part of the operation, or of none; false if it failed, which poisons the transport.
  template <class Part>
  bool guarded(const Operation* operation, const Part& part);
  void complete(Operation& operation, std::optional<Error> error);
  void fail_all(const Fault& fault);
  void check_patience();
  /// True if a peer that has left had said something that was not heard yet.
  bool check_departures();
  [[nodiscard]] static std::vector<RankId> awaited_members(const Entry& entry);
  [[nodiscard]] std::string describe_pending();

  // The thread that drives while nobody waits.
  void serve();
  void wait_for_duty();
  [[nodiscard]] bool on_duty() const { return (num_pending_ > 0 || backlog_size_ > 0) && num_waiters_ == 0; }
  void notify_server();

  std::shared_ptr<Transport> transport_;
  SliceLimits limits_;

  std::mutex queue_mutex_;
  std::vector<std::shared_ptr<Operation>> issued_;  // not yet seen by a driver
  std::vector<std::deque<SignalRecord>> backlog_;   // by transport rank: what its mailbox had no room for
  std::atomic<std::size_t> backlog_size_{0};

  std::mutex driver_mutex_;
  std::atomic<bool> driver_contended_{false};
  OperationTable table_;
  std::vector<std::shared_ptr<Operation>> queue_;     // to be stepped, each once
  std::vector<std::shared_ptr<Operation>> finished_;  // since a thread entered the room
  std::vector<std::shared_ptr<Operation>> failed_;    // kept: a peer may still be writing into their blocks
  Clock::time_point last_patience_check_;

  std::atomic<std::uint64_t> num_bytes_sent_{0};
  std::atomic<std::int32_t> num_tickets_{0};
  std::atomic<std::int32_t> num_pending_{0};               // issued and not done
  std::atomic<std::int32_t> num_waiters_{0};               // callers inside wait()
  std::atomic<std::chrono::milliseconds> nap_{kPatience};  // how long drivers may sleep; set in the room

  std::shared_ptr<Duty> duty_ = std::make_shared<Duty>();
  std::thread server_;
};

}  // namespace shunt
