// An operation that a ticket waits for.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "core/fail.hpp"
#include "engine/world_impl.hpp"
#include "shunt/ticket.hpp"

namespace shunt {

/// Counts a ticket that the caller holds, as long as it lives.
class HeldTicket {
 public:
  /// Throws Error(invalid_argument) if the rank has kMostTickets already.
  HeldTicket(std::shared_ptr<CommContext> comm, OpKind kind) : comm_(std::move(comm)) {
    comm_->progress().add_ticket(kind);
  }
  ~HeldTicket() { comm_->progress().remove_ticket(); }
  HeldTicket(const HeldTicket&) = delete;
  HeldTicket& operator=(const HeldTicket&) = delete;

  [[nodiscard]] CommContext& comm() const { return *comm_; }

 private:
  std::shared_ptr<CommContext> comm_;
};

/// The end of a ticket of this kind that an exception destroys: waits for the liveness limit at most for `is_done`,
/// then poisons the world.
template <class IsDone>
void wait_while_unwinding(CommContext& comm, OpKind kind, const IsDone& is_done) {
  const auto end = std::chrono::steady_clock::now() + comm.environment().liveness;
  comm.progress().drive_until([&] { return is_done() || std::chrono::steady_clock::now() > end; });
  Transport& transport = comm.transport();
  if (!is_done())
    transport.report(
        ErrorCode::peer_failed, transport.rank(),
        fmt::format("rank {} dropped a ticket of {} because of an exception", transport.rank(), to_string(kind)));
}

class PendingOperation final : public Pending {
 public:
  /// Throws as HeldTicket.
  PendingOperation(std::shared_ptr<CommContext> comm, std::shared_ptr<Operation> operation)
      : ticket_(std::move(comm), operation->announcement().kind), operation_(std::move(operation)) {}

  void wait() override {
    try {
      ticket_.comm().progress().wait(*operation_);
    } catch (const Error&) {
      operation_->release_after_fault();
      throw;
    }
  }
  void wait_on(Stream) override { wait(); }
  [[nodiscard]] bool done() const override { return operation_->done(); }
  void drop(bool unwinding) override {
    if (unwinding)
      wait_while_unwinding(ticket_.comm(), operation_->announcement().kind, [&] { return operation_->done(); });
    wait();
  }

 private:
  HeldTicket ticket_;
  std::shared_ptr<Operation> operation_;
};

}  // namespace shunt
