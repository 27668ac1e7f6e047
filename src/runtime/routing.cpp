// The choice of a token's experts, and the loss that balances it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "runtime/kernels.hpp"
#include "runtime/rows.hpp"

namespace shunt::runtime::kernels {
namespace {

using graph::DimRole;

/// A token's choices in a view: one element per choice, with gaps in memory.
template <class T>
class Choices {
 public:
  Choices(const Axis& axis, std::byte* at) : data_(reinterpret_cast<T*>(at)), axis_(axis) {}
  [[nodiscard]] T& operator[](std::int64_t choice) const { return data_[choice * axis_.stride]; }
  [[nodiscard]] std::int64_t size() const { return axis_.size; }

 private:
  T* data_;
  const Axis& axis_;
};

/// The groups whose two best experts score highest (DeepSeek-V3, arXiv 2412.19437, section 2.1.2), as flags.
std::vector<bool> best_groups(std::span<const float> scores, std::int64_t num_groups, std::int64_t num_kept) {
  const std::size_t size = scores.size() / static_cast<std::size_t>(num_groups);
  std::vector<float> totals;
  for (std::int64_t group = 0; group < num_groups; ++group) {
    float best = -INFINITY, second = -INFINITY;
    for (const float score : scores.subspan(static_cast<std::size_t>(group) * size, size)) {
      second = std::max(second, std::min(best, score));
      best = std::max(best, score);
    }
    totals.push_back(size > 1 ? best + second : best);
  }
  std::vector<std::size_t> order(totals.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t group) { return totals[group]; });
  std::vector<bool> is_kept(totals.size());
  for (std::int64_t i = 0; i < num_kept; ++i) is_kept[order[static_cast<std::size_t>(i)]] = true;
  return is_kept;
}

}  // namespace

void topk(const OpCall& call) {
  const View &scores = call.in(0), &experts = call.out();
  const std::array expert = {call.dim("expert")};
  const Axis& choice = *experts.find(call.dim("choice"));
  const std::int64_t num_groups = call.integer("groups", 1), num_kept = call.integer("groups_kept", num_groups);
  Row rows(scores, expert);
  std::vector<float> biased(rows.size());
  std::vector<std::int32_t> order;
  for_each_index<2>(axes_without(scores, expert), {&scores, &experts}, [&](const auto&, const auto& at) {
    std::copy_n(rows.load(at[0]), rows.size(), biased.begin());
    if (call.operands.size() == 2)
      for (std::size_t i = 0; i < biased.size(); ++i) biased[i] += call.in(1).f32()[i];
    // What is no number has no order. Its weight is none either, which planning refuses.
    std::ranges::replace_if(
        biased, [](float score) { return std::isnan(score); }, -INFINITY);
    order.resize(biased.size());
    std::iota(order.begin(), order.end(), 0);
    if (num_kept < num_groups) {
      const std::vector<bool> is_kept = best_groups(biased, num_groups, num_kept);
      const std::size_t size = biased.size() / is_kept.size();
      std::erase_if(order, [&](std::int32_t each) { return !is_kept[static_cast<std::size_t>(each) / size]; });
    }
    std::ranges::partial_sort(order, order.begin() + choice.size, [&](std::int32_t a, std::int32_t b) {
      const float of_a = biased[static_cast<std::size_t>(a)], of_b = biased[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    });
    const Choices<std::int32_t> chosen(choice, at[1]);
    for (std::int64_t i = 0; i < chosen.size(); ++i) chosen[i] = order[static_cast<std::size_t>(i)];
  });
}

void pick(const OpCall& call) {
  const View &scores = call.in(0), &experts = call.in(1), &weights = call.out();
  const Axis& choice = call.axis_of_role(experts, DimRole::choice);
  const Axis& weight_choice = *weights.find(choice.dim);
  const std::array expert = {call.axis_of_role(scores, DimRole::expert).dim};
  const auto by = static_cast<float>(call.real("scale", 1));
  Row rows(scores, expert);
  for_each_index<3>(axes_without(experts, std::array{choice.dim}), {&scores, &experts, &weights},
                    [&](const auto&, const auto& at) {
                      const float* const row = rows.load(at[0]);
                      const Choices<std::int32_t> chosen(choice, at[1]);
                      const Choices<float> picked(weight_choice, at[2]);
                      float total = 0;
                      for (std::int64_t i = 0; i < chosen.size(); ++i) {
                        picked[i] = chosen[i] < 0 ? 0.0f : by * row[chosen[i]];
                        total += chosen[i] < 0 ? 0.0f : row[chosen[i]];
                      }
                      if (call.integer("normalise") == 0 || total == 0) return;
                      for (std::int64_t i = 0; i < chosen.size(); ++i) picked[i] /= total;
                    });
}

void pick_dx(const OpCall& call) {
  const View &dweights = call.in(0), &scores = call.in(1), &experts = call.in(2), &dscores = call.out();
  const Axis& choice = call.axis_of_role(experts, DimRole::choice);
  const Axis& weight_choice = *dweights.find(choice.dim);
  const std::array expert = {call.axis_of_role(scores, DimRole::expert).dim};
  const auto by = static_cast<float>(call.real("scale", 1));
  Row rows(scores, expert), results(dscores, expert);
  for_each_index<4>(axes_without(experts, std::array{choice.dim}), {&dweights, &scores, &experts, &dscores},
                    [&](const auto&, const auto& at) {
                      const Choices<float> gradients(weight_choice, at[0]);
                      const float* const row = rows.load(at[1]);
                      const Choices<std::int32_t> chosen(choice, at[2]);
                      float* const to = results.memory(at[3]);
                      std::fill_n(to, results.size(), 0.0f);
                      float total = 0, along = 0;
                      for (std::int64_t i = 0; i < chosen.size(); ++i) {
                        if (chosen[i] < 0) continue;
                        total += row[chosen[i]];
                        along += gradients[i] * row[chosen[i]];
                      }
                      const bool normalises = call.integer("normalise") != 0 && total != 0;
                      for (std::int64_t i = 0; i < chosen.size(); ++i)
                        if (chosen[i] >= 0)
                          to[chosen[i]] +=
                              by * (normalises ? gradients[i] / total - along / (total * total) : gradients[i]);
                      results.store(at[3]);
                    });
}

// In layout order, which is that of tokens and then choices.
void limit(const OpCall& call) {
  const View &experts = call.in(0), &kept = call.out(0), &used = call.out(1);
  const auto num_experts = static_cast<std::size_t>(used.count());
  if (call.operands.size() == 2)
    std::copy_n(call.in(1).i32(), num_experts, used.i32());
  else
    std::fill_n(used.i32(), num_experts, 0);
  const std::int64_t capacity = call.integer("capacity");
  for_each_run<2>(kept.axes, {&experts, &kept}, [&](const Run<2>& run, const std::array<std::byte*, 2>& at) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      const std::int32_t expert = reinterpret_cast<const std::int32_t*>(at[0])[i * run.strides[0]];
      std::int32_t& result = reinterpret_cast<std::int32_t*>(at[1])[i * run.strides[1]];
      result = expert < 0 || used.i32()[expert] >= capacity ? -1 : expert;
      if (result >= 0) ++used.i32()[result];
    }
  });
}

void count(const OpCall& call) {
  const View &experts = call.in(0), &counts = call.out();
  std::fill_n(counts.f32(), counts.count(), 0.0f);
  for_each_run<1>(experts.axes, {&experts}, [&](const Run<1>& run, const std::array<std::byte*, 1>& at) {
    for (std::int64_t i = 0; i < run.count; ++i)
      if (const auto expert = reinterpret_cast<const std::int32_t*>(at[0])[i * run.strides[0]]; expert >= 0)
        ++counts.f32()[expert];
  });
}

// Switch Transformers' (arXiv 2101.03961, equation 4), with top-k instead of one choice.
void balance_loss(const OpCall& call) {
  const auto tokens = static_cast<double>(call.integer("tokens")),
             choices = static_cast<double>(call.integer("choices"));
  const std::int64_t num_experts = call.in(0).count();
  double total = 0;
  for (std::int64_t expert = 0; expert < num_experts; ++expert)
    total += static_cast<double>(call.in(0).f32()[expert]) / (tokens * choices) * call.in(1).f32()[expert] / tokens;
  *call.out().f32() = static_cast<float>(call.real("by") * static_cast<double>(num_experts) * total);
}

void balance_loss_dx(const OpCall& call) {
  const auto tokens = static_cast<double>(call.integer("tokens")),
             choices = static_cast<double>(call.integer("choices"));
  const std::int64_t num_experts = call.in(1).count();
  const double by =
      *call.in(0).f32() * call.real("by") * static_cast<double>(num_experts) / (tokens * choices * tokens);
  for (std::int64_t expert = 0; expert < num_experts; ++expert)
    call.out().f32()[expert] = static_cast<float>(by * call.in(1).f32()[expert]);
}

}  // namespace shunt::runtime::kernels
