#include "bench/reference/case.hpp"

#include <cmath>
#include <utility>

namespace shunt {
namespace {

/// Sums of 64 such values with weights stay finite in f16.
float random_value(Dice& dice) {
  if (dice.one_in(30)) return dice.pick({0.0f, -0.0f});
  const float magnitude =
      std::ldexp(1.0f + static_cast<float>(dice.between(0, (1 << 23) - 1)) * 0x1p-23f, dice.between(-8, 5));
  return dice.one_in(2) ? magnitude : -magnitude;
}

HostRows random_rows(Dice& dice, DType dtype, std::int64_t rows, std::int64_t cols) {
  HostRows matrix(dtype, rows, cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool is_zero = dice.one_in(20);  // fp8 has a rule for blocks without a largest value
    for (std::int64_t col = 0; col < cols && !is_zero; ++col)
      if (dtype == fp8_e4m3)
        matrix.set_bits(row, col, static_cast<std::uint8_t>(dice.between(0, 255)));
      else
        matrix.set(row, col, random_value(dice));
  }
  return matrix;
}

/// Where a padded row stands once it is packed; rows that are not defined stay behind. block: rows of an expert.
std::vector<std::size_t> packed_places(const std::vector<bool>& defined, std::size_t block) {
  std::vector<std::size_t> places(defined.size());
  for (std::size_t begin = 0; begin < defined.size(); begin += block) {
    std::size_t next = begin;
    for (const bool wanted : {true, false})
      for (std::size_t row = begin; row < begin + block; ++row)
        if (defined[row] == wanted) places[row] = next++;
  }
  return places;
}

void move_rows(HostRows& rows, const std::vector<std::size_t>& places) {
  const HostRows before = rows;
  for (std::int64_t row = 0; row < rows.rows(); ++row)
    rows.copy_row(static_cast<std::int64_t>(places[static_cast<std::size_t>(row)]), before, row);
}

template <class T>
void move_values(std::vector<T>& values, const std::vector<std::size_t>& places) {
  const std::vector<T> before = values;
  for (std::size_t i = 0; i < values.size(); ++i) values[places[i]] = before[i];
}

}  // namespace

void ReferenceCase::draw(const ReferenceShuffle& reference, DType x_dtype, Dice& dice) {
  const EngineOptions& options = reference.options();
  const auto blocks = static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(options.hidden)));
  for (const PlanData& plan : reference.plans()) {
    x.push_back(random_rows(dice, x_dtype, plan.num_tokens, options.hidden));
    scales.push_back(x_dtype == fp8_e4m3 ? random_rows(dice, f32, plan.num_tokens, blocks) : HostRows());
    expert_out.push_back(random_rows(dice, *options.expert_dtype, plan.num_rows(), options.hidden));
    grad_rows.push_back(random_rows(dice, *options.expert_dtype, plan.num_rows(), options.hidden));
    grad_out.push_back(random_rows(dice, *options.result_dtype, plan.num_tokens, options.hidden));
  }
  expected = {.plans = reference.plans(),
              .dispatch = reference.dispatch(x, scales),
              .combine = reference.combine(expert_out),
              .dispatch_backward = reference.dispatch_backward(grad_rows),
              .combine_backward = reference.combine_backward(grad_out, expert_out)};
}

void pack(ReferenceRows& rows, HostRows& expert_out, std::size_t block_rows) {
  const auto places = packed_places(rows.defined, block_rows);
  move_rows(rows.rows, places);
  move_rows(rows.scales, places);
  move_values(rows.origins, places);
  move_values(rows.weights, places);
  move_values(rows.defined, places);
  move_rows(expert_out, places);
}

}  // namespace shunt
