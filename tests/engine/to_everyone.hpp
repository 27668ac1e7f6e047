// The smallest shuffle that distinguishes ranks and operations: every rank's one token goes to every rank's one expert.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/elements.hpp"
#include "engine/place.hpp"
#include "shunt/engine.hpp"

namespace shunt::test {

class ToEveryone {
 public:
  static constexpr std::int32_t kHidden = 5;

  /// Collective.
  explicit ToEveryone(World& world, const Place& place = kHostThreads, const Companions& companions = {},
                      const PlanOptions& options = {})
      : world_(world), engine_(world, place.options({.hidden = kHidden, .dtype = f32, .companions = companions})) {
    std::vector<std::int32_t> experts(static_cast<std::size_t>(world.size()));
    std::iota(experts.begin(), experts.end(), 0);
    plan_ = engine_.plan({experts, {}, world.size()}, ExpertMap::contiguous(world.size(), world.size()), options);
  }

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }

  /// What `rank` sends in operation `n`; small integers, so that sums are exact.
  static float value(int n, std::int32_t rank) { return static_cast<float>(100 * n + rank); }

  /// This rank's token for operation `n`.
  [[nodiscard]] Tensor token(int n) const {
    Tensor row = engine_.allocate(f32, 1, kHidden);
    fill(engine_, row, value(n, world_.rank().value));
    return row;
  }
  Ticket<Rows> dispatch(int n, const DispatchOptions& options = {}) {
    return engine_.dispatch(plan_, token(n), options);
  }
  /// For what dispatch delivers.
  [[nodiscard]] Tensor rows() const { return engine_.allocate(f32, plan_.num_rows(), kHidden); }

  /// Symmetric expert outputs: this rank answers each token of operation `n` with its own value.
  [[nodiscard]] Tensor answers(int n) const {
    Tensor rows = engine_.expert_out(plan_);
    fill(engine_, rows, value(n, world_.rank().value));
    return rows;
  }

  [[nodiscard]] bool is_dispatch(const ConstTensor& rows, int n) const {
    std::vector<float> expected;
    for (std::int32_t source = 0; source < world_.size(); ++source)
      expected.insert(expected.end(), kHidden, value(n, source));
    return floats_of(engine_, rows) == expected;
  }
  [[nodiscard]] bool is_sum_of_answers(const ConstTensor& out, int n) const {
    float sum = 0;
    for (std::int32_t rank = 0; rank < world_.size(); ++rank) sum += value(n, rank);
    return floats_of(engine_, out) == std::vector<float>(kHidden, sum);
  }

 private:
  World& world_;
  Engine engine_;
  Plan plan_;
};

}  // namespace shunt::test
