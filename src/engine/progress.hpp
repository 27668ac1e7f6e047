// Drives a rank's operations: on threads that wait for one, or else on a server thread.
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
  /// A calling thread that drives; when the last one leaves, the server thread takes over.
  class Waiter {
   public:
    explicit Waiter(Progress& progress) : progress_(progress) { ++progress_.num_waiters_; }
    ~Waiter() {
      --progress_.num_waiters_;
      if (progress_.needs_server()) progress_.notify_server();
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    Progress& progress_;
  };

  /// What the server thread sleeps on. Blocks hold a reference to this alone: the server thread may free the last
  /// block, and a reference to Progress would make the thread destroy, and wait for, itself.
  class ServerState {
   public:
    /// Call when a block was freed: freed memory is returned to the system after a while without operations.
    void schedule_trim();

   private:
    friend class Progress;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool trim_due_ = false;
    std::atomic<bool> progress_is_gone_{false};
  };

  Progress(std::shared_ptr<Transport> transport, const SliceLimits& limits);
  /// Stops driving; pending operations stay pending.
  ~Progress();

  /// Counts a ticket that a caller holds. Throws Error(invalid_argument), and counts nothing, beyond kMostTickets:
  /// peers store the signals of operations that they have not issued.
  void add_ticket(OpKind kind);
  void remove_ticket() { --num_tickets_; }

  /// Gives the operation the next place in `next_sequence`, announces it to its near peers once it is ready, and
  /// returns. Throws the world's fault if it is poisoned.
  void issue(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence);

  /// Drives until the operation is done; throws its error.
  void wait(Operation& operation);

  /// Drives until condition(), which a thread may make true that then wakes the transport.
  template <class Condition>
  void drive_until(const Condition& condition) {
    const Waiter waiter(*this);
    while (!condition()) {
      const std::uint32_t seen = transport_->observe();
      if (!condition() && !try_advance() && !condition()) transport_->sleep(seen, sleep_limit_.load());
    }
  }

  /// Issues and waits, without a wake-up of the server.
  void issue_and_wait(const std::shared_ptr<Operation>& operation, std::uint32_t& next_sequence);

  /// Payload of slices to far ranks.
  [[nodiscard]] std::uint64_t num_bytes_sent() const { return num_bytes_sent_; }

  [[nodiscard]] const std::shared_ptr<ServerState>& server_state() const { return server_state_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Entry = OperationTable::Entry;
  using Phase = Operation::Phase;

  // How often a driver checks silent peers and deadlines.
  static constexpr std::chrono::milliseconds kCheckInterval{100};
  // Longest sleep while an operation has returned Work::soon.
  static constexpr std::chrono::milliseconds kSoon{1};

  // Posting. queue_mutex_ is held briefly, so issue() never waits for rows to move.
  void post(RankId peer, const SignalRecord& record);
  void announce(Operation& operation);
  void signal_near(const Operation& operation, Signal signal);
  [[nodiscard]] static SignalRecord record_of(const Operation& operation, Signal signal);
  void flush_backlog();
  void drain_backlog();

  // Driving. driver_mutex_ is held while one thread polls, runs and completes operations.
  bool try_advance();
  bool advance();
  bool receive();
  bool receive_messages();
  bool receive_slices();
  void take(const Message& message);
  void start(std::shared_ptr<Operation> operation);
  /// Queues the operation for a step in the next advance().
  void enqueue(const std::shared_ptr<Operation>& operation);
  bool step_queued();
  /// Advances the operation through its phases as far as possible; queues it again unless a peer must act first.
  bool step(Entry& entry);
  bool announce_if_ready(Operation& operation);
  bool begin(Entry& entry);
  bool work(Entry& entry);
  bool finish(Entry& entry);
  void open_channels(Entry& entry);
  /// Makes `member`, a rank of the transport, one whose signals the operation waits for.
  void add_partner(Entry& entry, RankId member);
  /// Runs `part`; if it throws, poisons the world and returns false. `operation` names it in the error; may be null.
  template <class Part>
  bool guarded(const Operation* operation, const Part& part);
  void complete(Operation& operation, std::optional<Error> error);
  void fail_all(const Fault& fault);
  void check_deadlines();
  /// Reports peers that left although an operation waits for them. True if messages of theirs were still unread.
  bool check_departures();
  [[nodiscard]] bool is_far(RankId peer) const {
    return transport_->host(peer) != transport_->host(transport_->rank());
  }
  /// Members that the operation waits for, those that have not announced it first.
  [[nodiscard]] static std::vector<RankId> awaited_members(const Entry& entry);
  [[nodiscard]] std::string describe_pending();

  // The server thread drives while no caller does.
  void serve();
  void wait_until_needed();
  [[nodiscard]] bool needs_server() const { return (num_pending_ > 0 || backlog_size_ > 0) && num_waiters_ == 0; }
  void notify_server();

  std::shared_ptr<Transport> transport_;
  SliceLimits limits_;

  std::mutex queue_mutex_;
  std::vector<std::shared_ptr<Operation>> issued_;  // not yet picked up by a driver
  std::vector<std::deque<SignalRecord>> backlog_;   // by transport rank: signals that did not fit into its mailbox
  std::atomic<std::size_t> backlog_size_{0};

  std::mutex driver_mutex_;
  std::atomic<bool> driver_contended_{false};
  OperationTable table_;
  std::vector<std::shared_ptr<Operation>> queue_;     // for a step, each once
  std::vector<std::shared_ptr<Operation>> finished_;  // since the driver took driver_mutex_
  std::vector<std::shared_ptr<Operation>> failed_;    // kept: a peer may still be writing into their blocks
  Clock::time_point last_check_;

  std::atomic<std::uint64_t> num_bytes_sent_{0};
  std::atomic<std::int32_t> num_tickets_{0};
  std::atomic<std::int32_t> num_pending_{0};                            // issued and not done
  std::atomic<std::int32_t> num_waiters_{0};                            // callers inside wait()
  std::atomic<std::chrono::milliseconds> sleep_limit_{kCheckInterval};  // how long drivers may sleep; set by the driver

  std::shared_ptr<ServerState> server_state_ = std::make_shared<ServerState>();
  std::thread server_;
};

}  // namespace shunt
