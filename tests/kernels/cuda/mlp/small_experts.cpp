#include "kernels/cuda/mlp/small_experts.hpp"

#include <cmath>
#include <cstring>

#include "shunt/float_formats.hpp"

namespace shunt::test {
namespace {

std::vector<float> random_values(std::mt19937& random, std::int64_t count, float scale, DType dtype) {
  std::uniform_real_distribution<float> draw(-scale, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = rounded_to(draw(random), dtype);
  return values;
}

}  // namespace

SmallExperts::SmallExperts(std::mt19937& random, DType dtype, std::int64_t hidden, std::int64_t ffn,
                           std::int32_t num_experts)
    : dtype_(dtype), hidden_(hidden), ffn_(ffn) {
  std::vector<float> gate_up;
  std::vector<float> down;
  const auto scale = [](std::int64_t inputs) { return std::sqrt(3.0f / static_cast<float>(inputs)); };
  for (std::int32_t expert = 0; expert < num_experts; ++expert) {
    host_.push_back({hidden, ffn, dtype, random_values(random, 2 * ffn * hidden, scale(hidden), dtype),
                     random_values(random, hidden * ffn, scale(ffn), dtype)});
    gate_up.insert(gate_up.end(), host_.back().gate_up.begin(), host_.back().gate_up.end());
    down.insert(down.end(), host_.back().down.begin(), host_.back().down.end());
  }
  gate_up_ = upload_values(gate_up);
  down_ = upload_values(down);
}

std::vector<float> SmallExperts::random_rows(std::mt19937& random, std::int64_t rows) const {
  return random_values(random, rows * hidden_, 2.0f, dtype_);
}

std::byte* SmallExperts::upload_values(std::span<const float> values) {
  if (dtype_ == f32) return reinterpret_cast<std::byte*>(upload_as(values));
  std::vector<std::uint16_t> narrow;
  for (const float value : values) narrow.push_back(dtype_ == bf16 ? bf16_from_f32(value) : f16_from_f32(value));
  return reinterpret_cast<std::byte*>(upload_as(std::span<const std::uint16_t>(narrow)));
}

std::byte* SmallExperts::take_rows(std::int64_t rows) {
  const std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes();
  std::byte* const data = arena_.take(bytes);
  poison(data, bytes, nullptr);
  return data;
}

std::vector<float> SmallExperts::download_row(const std::byte* rows, std::int64_t row) const {
  return widened(download(rows + static_cast<std::size_t>(row) * row_bytes(), row_bytes(), nullptr), dtype_);
}

}  // namespace shunt::test
