// An operation that a ticket waits for.
#pragma once

#include <memory>
#include <utility>

#include "core/fail.hpp"
#include "engine/world_impl.hpp"
#include "shunt/ticket.hpp"

namespace shunt {

class PendingOperation final : public Pending {
 public:
  /// Throws Error(invalid_argument) if the rank has kMostTickets already.
  PendingOperation(std::shared_ptr<CommContext> comm, std::shared_ptr<Operation> operation)
      : comm_(std::move(comm)), operation_(std::move(operation)) {
    comm_->progress().add_ticket(*operation_);
  }
  ~PendingOperation() override { comm_->progress().remove_ticket(); }
  PendingOperation(const PendingOperation&) = delete;
  PendingOperation& operator=(const PendingOperation&) = delete;

  void wait() override {
    try {
      comm_->progress().wait(*operation_);
    } catch (const Error&) {
      operation_->release_after_fault();
      throw;
    }
  }
  void wait_on(Stream) override { wait(); }
  [[nodiscard]] bool done() const override { return operation_->done(); }
  void drop(bool unwinding) override {
    if (unwinding && !comm_->progress().wait_for(*operation_, comm_->environment().liveness)) {
      Transport& transport = comm_->transport();
      transport.report(ErrorCode::peer_failed, transport.rank(),
                       fmt::format("rank {} dropped a ticket of {} because of an exception", transport.rank(),
                                   to_string(operation_->announcement().kind)));
    }
    wait();
  }

 private:
  std::shared_ptr<CommContext> comm_;
  std::shared_ptr<Operation> operation_;
};

}  // namespace shunt
