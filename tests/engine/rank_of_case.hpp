// One rank's part in a case.
#pragma once

#include <functional>

#include "shunt/engine.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {

/// Waits for an operation and compares its result with the reference; throws if a bit differs. Call it at most once;
/// whoever drops it without a call drops the ticket.
using Check = std::function<void()>;

/// Each operation is issued at once. Symmetric inputs are dropped on return: only the ticket keeps them.
class RankOfCase {
 public:
  /// Plans: collective. All three must outlive this object and its checks.
  RankOfCase(World& world, Engine& engine, const ShuffleCase& all);

  Check dispatch();
  Check combine();
  Check dispatch_backward();
  Check combine_backward();

 private:
  [[nodiscard]] std::size_t rank() const { return world_.rank().index(); }
  /// The tensor, in the kind of memory that is wanted.
  [[nodiscard]] ConstTensor input(const HostRows& rows, Memory memory);
  [[nodiscard]] Tensor output(const HostRows& expected, Memory memory);
  [[nodiscard]] Check pull(Ticket<Tensor> ticket, const Tensor& out, const HostRows& expected, const char* name);

  World& world_;
  Engine& engine_;
  const ShuffleCase& case_;
  Plan plan_;
};

/// Makes an engine, plans, and runs all four operations on this rank, with pauses of up to most_pause_us between calls;
/// the checks come in any order. Collective. Throws what differs, with the case's seed and description.
void run_case(World& world, const ShuffleCase& all, std::int32_t most_pause_us = 0);

}  // namespace shunt::test
