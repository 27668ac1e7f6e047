// A handle on an operation that is under way.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "shunt/error.hpp"
#include "shunt/stream.hpp"

namespace shunt {

/// Tickets that a rank may hold at a time, over all its engines on host memory and between nodes, on worlds of one
/// World::spawn, from_environment or create: those that were neither waited for nor destroyed, whether their operations
/// are complete or not. The call that would make one more throws Error(invalid_argument) before anything is sent, and
/// can be repeated. Engines on devices of one node have no such limit.
inline constexpr int kMostTickets = 4096;

/// The part of an operation that tickets need.
class Pending {
 public:
  virtual ~Pending() = default;
  /// The host waits. Throws the Error that ended the operation.
  virtual void wait() = 0;
  /// What is put on the stream later finds the operation complete.
  virtual void wait_on(Stream stream) = 0;
  [[nodiscard]] virtual bool done() const = 0;
  /// What a ticket does when it is destroyed before it was waited for. `unwinding`: because of an exception.
  virtual void drop(bool unwinding) = 0;
};

/// Move-only; one thread at a time. Complete means: this rank's output is whole *and* its inputs may be reused. The
/// operation proceeds whether or not anyone waits.
///
/// The destructor makes memory safe to reuse, and drops the Error if there is one. With host memory, and between nodes,
/// it waits; while an exception is unwinding for the liveness limit at most, and then it poisons the world
/// (peer_failed). On devices of one node it is wait_on(the stream that the call was given), which is captured while
/// that stream is.
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
      exceptions_at_birth_ = other.exceptions_at_birth_;
    }
    return *this;
  }
  ~Ticket() { drop(); }

  /// The host waits. Call it once; it ends the ticket. Throws the Error that ended the operation.
  Result wait() {
    const auto pending = std::move(pending_);
    if (!pending) fail_spent();
    pending->wait();
    return std::move(result_);
  }

  /// What is put on the stream after this call starts when the operation is complete, and may use the result. The host
  /// goes on, but for engines on host memory and between nodes, where it waits. May be called for several streams. If
  /// the operation fails on a device, the stream goes on with poisoned outputs, and Engine::check() throws the Error.
  ///
  /// `run`: of experts, from 0 to num_runs() − 1; what follows may use the rows of that run.
  Result wait_on(Stream stream, std::int32_t run = 0) {
    if (!pending_) fail_spent();
    if (run < 0 || run >= num_runs())
      throw Error(ErrorCode::invalid_argument, "wait_on: there is no such run of experts");
    pending_->wait_on(stream);
    return result_;
  }
  /// Into how many parts, by ascending expert, the result becomes ready.
  [[nodiscard]] std::int32_t num_runs() const { return 1; }

  /// Never blocks. True also when wait() would throw at once.
  [[nodiscard]] bool done() const { return !pending_ || pending_->done(); }

 private:
  [[noreturn]] static void fail_spent() {
    throw Error(ErrorCode::invalid_argument, "the ticket was waited for before, or moved from");
  }
  void drop() noexcept {
    if (!pending_) return;
    try {
      pending_->drop(std::uncaught_exceptions() > exceptions_at_birth_);
    } catch (...) {  // NOLINT: whoever drops a ticket does not ask how it ended
    }
    pending_.reset();
  }

  std::shared_ptr<Pending> pending_;
  Result result_;
  int exceptions_at_birth_ = std::uncaught_exceptions();
};

}  // namespace shunt
