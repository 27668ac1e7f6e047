// The smallest shuffle that tells ranks and operations apart: every rank's one token goes to every rank's one expert.
#pragma once

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "shunt/engine.hpp"

namespace shunt::test {

class ToEveryone {
 public:
  /// Collective.
  explicit ToEveryone(World& world) : world_(world), engine_(world, {.hidden = kHidden, .dtype = f32}) {
    std::vector<std::int32_t> experts(static_cast<std::size_t>(world.size()));
    std::iota(experts.begin(), experts.end(), 0);
    plan_ = engine_.plan({experts, {}, world.size()}, ExpertMap::contiguous(world.size(), world.size()));
  }

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }

  /// What `rank` sends in operation `n`; small integers, so that sums are exact.
  static float value(int n, std::int32_t rank) { return static_cast<float>(100 * n + rank); }

  /// This rank's token for operation `n`; lives as long as this object.
  [[nodiscard]] ConstTensor token(int n) {
    auto& row = tokens_.emplace_back(kHidden, value(n, world_.rank().value));
    return borrow(static_cast<const void*>(row.data()), f32, 1, kHidden);
  }
  Ticket<Rows> dispatch(int n, const DispatchOptions& options = {}) {
    return engine_.dispatch(plan_, token(n), options);
  }

  /// Symmetric expert outputs: this rank answers each token of operation `n` with its own value.
  [[nodiscard]] Tensor answers(int n) {
    Tensor rows = engine_.expert_out(plan_);
    std::ranges::fill(rows.as<float>(), value(n, world_.rank().value));
    return rows;
  }

  [[nodiscard]] bool is_dispatch(const ConstTensor& rows, int n) const {
    for (std::int32_t source = 0; source < world_.size(); ++source)
      for (std::int32_t i = 0; i < kHidden; ++i)
        if (rows.as<float>()[static_cast<std::size_t>(source * kHidden + i)] != value(n, source)) return false;
    return rows.rows == world_.size();
  }
  [[nodiscard]] bool is_sum_of_answers(const ConstTensor& out, int n) const {
    float sum = 0;
    for (std::int32_t rank = 0; rank < world_.size(); ++rank) sum += value(n, rank);
    return out.rows == 1 && std::ranges::all_of(out.as<float>(), [=](float element) { return element == sum; });
  }

 private:
  static constexpr std::int32_t kHidden = 5;

  World& world_;
  Engine engine_;
  Plan plan_;
  std::deque<std::vector<float>> tokens_;
};

}  // namespace shunt::test
