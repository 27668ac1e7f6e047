// A handle on an operation that is under way.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "shunt/error.hpp"

namespace shunt {

/// Tickets that a rank may hold at a time, over all its engines on worlds of one World::spawn, from_environment or
/// create: those that were neither waited for nor destroyed, whether their operations are complete or not. The call
/// that would make one more throws Error(invalid_argument) before anything is sent, and can be repeated.
inline constexpr int kMostTickets = 4096;

/// The part of an operation that tickets need.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Drives the operation on the caller's thread until it is complete. Throws the Error that ended it.
  virtual void wait() = 0;
  [[nodiscard]] virtual bool done() const = 0;
  /// Waits for the liveness limit at most. If that was not enough, tells the other ranks that this one won't go on:
  /// they may be waiting for what it would have done next.
  virtual void abandon() = 0;
};

/// Move-only; one thread at a time. Complete means: this rank's output is whole *and* its inputs may be reused. The
/// operation proceeds whether or not anyone waits. The destructor waits, and drops the Error if there is one. While an
/// exception is unwinding it waits for the liveness limit at most, and then poisons the world (peer_failed).
template <class Result>
class Ticket {
 public:
  Ticket(std::shared_ptr<Pending> pending, Result result) : pending_(std::move(pending)), result_(std::move(result)) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept {
    if (this != &other) {
      settle();
      pending_ = std::move(other.pending_);
      result_ = std::move(other.result_);
      exceptions_at_birth_ = other.exceptions_at_birth_;
    }
    return *this;
  }
  ~Ticket() { settle(); }

  /// Blocks until complete and hands over the result; call it once. Throws the Error that ended the operation.
  Result wait() {
    const auto pending = std::move(pending_);
    if (!pending) throw Error(ErrorCode::invalid_argument, "the ticket was waited for before, or moved from");
    pending->wait();
    return std::move(result_);
  }

  /// Never blocks. True also when wait() would throw at once.
  [[nodiscard]] bool done() const { return !pending_ || pending_->done(); }

 private:
  void settle() noexcept {
    if (!pending_) return;
    try {
      if (std::uncaught_exceptions() > exceptions_at_birth_) pending_->abandon();
      pending_->wait();
    } catch (...) {  // NOLINT: whoever drops a ticket does not ask how it ended
    }
    pending_.reset();
  }

  std::shared_ptr<Pending> pending_;
  Result result_;
  int exceptions_at_birth_ = std::uncaught_exceptions();
};

}  // namespace shunt
