// A plan in the making: exchanges that follow each other without further calls.
#pragma once

#include <memory>
#include <optional>

#include "core/narrow_routing.hpp"
#include "engine/engine_impl.hpp"
#include "engine/exchange.hpp"
#include "engine/pending_operation.hpp"
#include "plan/planner.hpp"

namespace shunt {

/// Its operations keep it until it is over.
class PlanRun final : public std::enable_shared_from_this<PlanRun> {
 public:
  /// Validates the routing, and issues nothing. `number`: of the engine's plans. The arguments must outlive the run;
  /// with keeps_map, the map need not.
  PlanRun(const Engine::Impl& engine, std::uint32_t first_sequence, std::uint32_t number, const Routing& routing,
          const ExpertMap& map, const PlanOptions& plan_options, bool keeps_map);

  /// Places in the engine's order that it takes, all at its start: the order of operations is that of the calls.
  [[nodiscard]] std::uint32_t num_operations() const;
  /// Complete when wait() has returned.
  [[nodiscard]] const std::shared_ptr<PlanData>& plan() const { return plan_; }

  void start() { proceed(); }
  /// Starts, and waits for the end without a wake-up of the server thread.
  void run() {
    chain_.run([&] { proceed(); });
  }

  void wait();
  [[nodiscard]] bool done() const { return chain_.done(); }

 private:
  template <class Part>
  void guarded(const Part& part);
  [[nodiscard]] ExchangePlace place();
  /// Issues the next exchange, or completes the plan.
  void proceed();
  void accept(std::span<const std::span<const std::byte>> proposals);
  void swap_far_lists();
  void accept_far_list(const FarBytes& list);
  void complete();

  std::shared_ptr<World::Impl> world_;
  EngineOptions options_;
  std::uint64_t key_, serial_;
  std::uint32_t next_sequence_, number_;
  NarrowRouting routing_;
  std::optional<ExpertMap> kept_map_;
  Planner planner_;
  std::shared_ptr<PlanData> plan_ = std::make_shared<PlanData>();
  Chain chain_;
};

/// What a caller's ticket of a plan holds.
class PendingPlan final : public Pending {
 public:
  /// Throws as HeldTicket. Made before the run, which takes places in the engine's order.
  explicit PendingPlan(std::shared_ptr<CommContext> comm) : ticket_(std::move(comm), OpKind::plan) {}
  void start(std::shared_ptr<PlanRun> run) {
    run_ = std::move(run);
    run_->start();
  }

  void wait() override { run_->wait(); }
  void wait_on(Stream) override { wait(); }
  [[nodiscard]] bool done() const override { return run_->done(); }
  void drop(bool unwinding) override {
    if (unwinding) wait_while_unwinding(ticket_.comm(), OpKind::plan, [&] { return done(); });
    wait();
  }

 private:
  HeldTicket ticket_;
  std::shared_ptr<PlanRun> run_;
};

}  // namespace shunt
