#include "bench/layer/random_experts.hpp"

#include <cmath>

#include "bench/reference/rows.hpp"
#include "core/hash.hpp"
#include "shunt/float_formats.hpp"

namespace shunt::bench {

AlignedBuffer RandomExperts::make(std::int32_t expert, std::uint64_t which, std::int64_t outputs,
                                  std::int64_t inputs) const {
  const DType dtype = config_.shuffle.dtype;
  const auto count = static_cast<std::size_t>(outputs * inputs);
  const float scale = std::sqrt(3.0f / static_cast<float>(inputs)) * 0x1p-23f;
  std::uint64_t state = Hasher().add(config_.shuffle.seed, expert, which).value() | 1;
  AlignedBuffer matrix;
  matrix.reserve(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    state ^= state << 13;  // xorshift64
    state ^= state >> 7;
    state ^= state << 17;
    const float value = static_cast<float>(static_cast<std::int32_t>(state >> 40) - (1 << 23)) * scale;
    if (dtype == f32)
      reinterpret_cast<float*>(matrix.data())[i] = value;
    else
      reinterpret_cast<std::uint16_t*>(matrix.data())[i] = bf16_from_f32(value);
  }
  return matrix;
}

RandomExperts::Matrices RandomExperts::make(std::int32_t expert) const {
  const std::int64_t hidden = config_.shuffle.hidden;
  return {make(expert, 0, 2 * config_.ffn, hidden), make(expert, 1, hidden, config_.ffn)};
}

ExpertMatrices RandomExperts::of_expert(std::int32_t expert) {
  auto found = matrices_.find(expert);
  if (found == matrices_.end()) found = matrices_.emplace(expert, make(expert)).first;
  return {found->second.gate_up.data(), found->second.down.data()};
}

ExpertWeights RandomExperts::of_rank(const ExpertMap& map, RankId rank) {
  ExpertWeights weights{.dtype = config_.shuffle.dtype, .hidden = config_.shuffle.hidden, .ffn = config_.ffn};
  const std::int32_t first = map.first_physical(rank).value;
  for (std::int32_t physical = first; physical < first + map.num_local(rank); ++physical)
    weights.experts.push_back(of_expert(map.logical(PhysicalId(physical)).value));
  return weights;
}

ReferenceExpert RandomExperts::reference(std::int32_t expert) const {
  Matrices matrices = make(expert);
  const DType dtype = config_.shuffle.dtype;
  const auto floats = [&](AlignedBuffer& matrix, std::int64_t count) {
    return widened({matrix.data(), static_cast<std::size_t>(count) * size_of(dtype)}, dtype);
  };
  const std::int64_t hidden = config_.shuffle.hidden;
  return {hidden, config_.ffn, dtype, floats(matrices.gate_up, 2 * config_.ffn * hidden),
          floats(matrices.down, hidden * config_.ffn)};
}

}  // namespace shunt::bench
