// Handle to an operation in flight.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "shunt/error.hpp"
#include "shunt/stream.hpp"

namespace shunt {

/// Upper bound on the tickets that a rank holds at a time: those neither waited for nor destroyed, whether or not their
/// operations are complete. They are counted over all its engines on host memory and between nodes, on worlds of one
/// World::spawn, from_environment or create. The call that would exceed it throws Error(invalid_argument) before
/// anything is sent, and can be repeated. Engines on devices of one node have no such limit.
inline constexpr int kMostTickets = 4096;

/// The interface of an operation to its ticket.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks the host. Throws the Error that ended the operation.
  virtual void wait() = 0;
  /// Orders later work on the stream after the operation.
  virtual void wait_on(Stream stream) = 0;
  [[nodiscard]] virtual bool done() const = 0;
  /// Called if a ticket is destroyed before it was waited for. unwinding: an exception is the cause.
  virtual void drop(bool unwinding) = 0;
};

/// Move-only; one thread at a time. Complete means: this rank's output is whole *and* its inputs may be reused. The
/// operation proceeds whether or not a thread waits.
///
/// The destructor makes the memory safe to reuse, and discards the operation's Error, if any.
/// - On host memory and between nodes, it waits. While an exception unwinds, it waits for the liveness limit at most,
///   then poisons the world (peer_failed).
/// - On devices of one node, it calls wait_on() with the stream that was passed to the operation; if that stream is
///   being captured, so is this.
template <class Result>
class Ticket {
 public:
  Ticket(std::shared_ptr<Pending> pending, Result result) : pending_(std::move(pending)), result_(std::move(result)) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept {
    if (this != &other) {
      drop();
      pending_ = std::move(other.pending_);
      result_ = std::move(other.result_);
      exceptions_at_construction_ = other.exceptions_at_construction_;
    }
    return *this;
  }
  ~Ticket() { drop(); }

  /// Blocks the host until the operation is complete. Throws the Error that ended it. Call it once; it ends the ticket.
  Result wait() {
    const auto pending = std::move(pending_);
    if (!pending) fail_spent();
    pending->wait();
    return std::move(result_);
  }

  /// Work that is put on the stream after this call starts when the operation is complete, and may use the result. The
  /// host does not wait, except for engines on host memory and between nodes. May be called for several streams. If the
  /// operation fails on a device, the stream continues with poisoned outputs, and Engine::check() throws the Error.
  ///
  /// run: a run of experts, from 0 to num_runs() − 1, whose rows later work may use.
  Result wait_on(Stream stream, std::int32_t run = 0) {
    if (!pending_) fail_spent();
    if (run < 0 || run >= num_runs())
      throw Error(ErrorCode::invalid_argument, "wait_on: there is no such run of experts");
    pending_->wait_on(stream);
    return result_;
  }
  /// Number of runs, by ascending expert, in which the result becomes ready.
  [[nodiscard]] std::int32_t num_runs() const { return 1; }

  /// Never blocks. Also true if wait() would throw at once.
  [[nodiscard]] bool done() const { return !pending_ || pending_->done(); }

 private:
  [[noreturn]] static void fail_spent() {
    throw Error(ErrorCode::invalid_argument, "the ticket was waited for before, or moved from");
  }
  void drop() noexcept {
    if (!pending_) return;
    try {
      pending_->drop(std::uncaught_exceptions() > exceptions_at_construction_);
    } catch (...) {  // NOLINT: a destroyed ticket discards its operation's Error
    }
    pending_.reset();
  }

  std::shared_ptr<Pending> pending_;
  Result result_;
  int exceptions_at_construction_ = std::uncaught_exceptions();
};

}  // namespace shunt
