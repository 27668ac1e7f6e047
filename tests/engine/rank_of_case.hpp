// One rank's part in a case.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/op_kind.hpp"
#include "engine/place.hpp"
#include "shunt/engine.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {

/// Waits for an operation and compares its result with the reference; throws if a bit differs. Called at most once; to
/// drop it without a call drops the ticket.
using Check = std::function<void()>;

/// A stream of the caller's, on which inputs come late.
struct Caller {
  Stream stream = nullptr;
  /// Puts a copy on the stream, from host memory to a contiguous tensor of the engine's memory, which is done late.
  std::function<void(const ConstTensor& from, const Tensor& to)> copy_late = {};
  /// Captures work on the engine's stream in a graph, and replays it once: plans with rows, and their dispatch.
  std::function<void(const Engine&, const std::function<void()>& work)> replay = {};
  /// Asks until an operation is done before it waits.
  bool asks = false;
};

/// Each operation is issued at once. Inputs are dropped on return: only the ticket keeps them.
class RankOfCase {
 public:
  /// Plans: collective. World, engine and case must outlive this object and its checks.
  RankOfCase(World& world, Engine& engine, const ShuffleCase& all, Caller caller = {});

  Check dispatch();
  Check combine() { return pull(OpKind::combine); }
  Check dispatch_backward() { return pull(OpKind::dispatch_backward); }
  Check combine_backward();
  /// Those of the four that can be done with the plan. Collective in their order.
  [[nodiscard]] std::vector<Check (RankOfCase::*)()> operations() const;
  /// `padded` rows of devices, and `packed` ones: a dispatch must be complete before its combine is prepared.
  [[nodiscard]] bool takes_turns() const;

 private:
  [[nodiscard]] std::size_t rank() const { return world_.rank().index(); }
  [[nodiscard]] bool can(Feature feature) const;
  [[nodiscard]] bool is_packed() const { return plan_options_.packed; }
  [[nodiscard]] bool has_scales() const { return case_.options.dtype == fp8_e4m3; }
  [[nodiscard]] bool has_rows_with_plan() const { return plan_options_.rows.data != nullptr; }

  [[nodiscard]] Routing bring_routing();
  void check_plan() const;
  void check_rows(const Rows& actual) const;
  template <class Result>
  [[nodiscard]] Result settle(Ticket<Result>& ticket) const;
  [[nodiscard]] Check pull(OpKind kind);

  /// A tensor of that way, which holds anything.
  [[nodiscard]] Tensor make(DType dtype, std::int64_t rows, std::int64_t cols, const Way& way) const;
  void fill(const Tensor& tensor, const ConstTensor& from) const;
  /// The rows, and more where the plan has room for more.
  [[nodiscard]] ConstTensor input(const HostRows& rows, const Way& way, std::int64_t num_rows) const;
  [[nodiscard]] ConstTensor input(const HostRows& rows, const Way& way) const { return input(rows, way, rows.rows()); }
  [[nodiscard]] ConstTensor expert_rows(const HostRows& rows, bool in_expert_out) const;
  /// Poisoned.
  [[nodiscard]] Tensor output(const HostRows& expected, std::int64_t num_rows, const Way& way) const;

  [[nodiscard]] HostRows read(const Tensor& tensor, std::int64_t num_rows) const;
  void require_same(std::string_view name, const Tensor& actual, const HostRows& expected, const Tensor& given = {},
                    const std::vector<bool>& compared = {}) const;
  template <class T>
  void require_same(std::string_view name, std::span<const T> actual, const std::vector<T>& expected,
                    const std::vector<bool>& compared = {}) const;

  World& world_;
  Engine& engine_;
  const ShuffleCase& case_;
  Caller caller_;
  ReferenceRows expected_rows_;
  HostRows expert_out_;
  // Where the routing lies: a device reads it when the plan's turn has come.
  std::vector<std::int64_t> wide_experts_;
  Tensor experts_, weights_;
  Routing routing_;
  PlanOptions plan_options_;
  Plan plan_;
};

struct CaseRun {
  /// The longest random pause between calls.
  std::int32_t most_pause_us = 0;
  /// How often a plan is made and used.
  std::uint64_t repeats = 1;
  Caller caller = {};
};

/// Whether engines of this kind can do what the case asks.
[[nodiscard]] bool can_run(EngineKind kind, const ShuffleCase& all);

/// Plans and runs the operations on this rank, with an engine of the case's own; the checks come in any order. Does
/// nothing if the engine can't run the case. Collective. Throws what differs, with the case's seed and description.
/// `device`: but for max_tokens.
void run_case(World& world, const Place& place, const ShuffleCase& all, const CaseRun& run = {},
              const DeviceOptions& device = small_device());

}  // namespace shunt::test
