#include "bench/layer/device_experts.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "kernels/cuda/mlp/tiles.hpp"
#include "kernels/cuda/mlp/unique_mlp.hpp"

namespace shunt::bench {
namespace {

class ExpertMajor final : public LayerExperts {
 public:
  ExpertMajor(const device::ExpertMlpShape& shape, const device::ExpertWeights& weights, Stream stream)
      : shape_(shape), mlp_(shape, weights, stream) {}

  void run(const Plan& plan, const Tensor& rows, const Tensor& out) override {
    mlp_.run(plan.device().expert_offsets.data(), rows.data, out.data);
  }
  [[nodiscard]] std::size_t workspace_bytes() const override { return shape_.workspace_bytes(); }
  [[nodiscard]] std::int64_t rows_computed() const override { return shape_.num_tiles * device::kTileRows; }

 private:
  device::ExpertMlpShape shape_;
  device::ExpertMlp mlp_;
};

device::UniqueView view_of(const Plan& plan) {
  const PlanArrays arrays = plan.device();
  return {.num_rows = arrays.row_count.data(),
          .expert_offsets = arrays.expert_offsets.data(),
          .expert_counts = arrays.expert_counts.data(),
          .unique_of_expert_row = arrays.unique_of_expert_row.data(),
          .expert_rows = arrays.expert_rows_of_unique.data(),
          .experts = arrays.unique_experts.data(),
          .weights = arrays.unique_weights.data(),
          .num_experts = plan.num_local_experts(),
          .topk = plan.topk()};
}

class TokenUnique final : public LayerExperts {
 public:
  TokenUnique(const device::UniqueMlpShape& shape, const device::ExpertWeights& weights, Stream stream)
      : shape_(shape), mlp_(shape, weights, stream) {}

  void run(const Plan& plan, const Tensor& rows, const Tensor& out) override {
    mlp_.run(view_of(plan), rows.data, out.data);
  }
  void check() override {
    if (mlp_.tiles_needed() > shape_.tiles_per_chunk)
      fail(ErrorCode::internal, "a run of rows needs {} tiles, there are {}", mlp_.tiles_needed(),
           shape_.tiles_per_chunk);
  }
  [[nodiscard]] std::size_t workspace_bytes() const override { return shape_.workspace_bytes(); }
  [[nodiscard]] std::int64_t rows_computed() const override { return shape_.num_chunks * shape_.buffer_rows(); }

 private:
  device::UniqueMlpShape shape_;
  device::UniqueMlp mlp_;
};

}  // namespace

std::unique_ptr<LayerExperts> make_layer_experts(const LayerConfig& config, const LayerDemand& demand, const Plan& plan,
                                                 const device::ExpertWeights& weights, Stream stream) {
  const ShuffleConfig& shuffle = config.shuffle;
  if (shuffle.layout == Layout::expert_major)
    return std::make_unique<ExpertMajor>(
        device::ExpertMlpShape{.dtype = shuffle.dtype,
                               .hidden = shuffle.hidden,
                               .ffn = config.ffn,
                               .num_experts = plan.num_local_experts(),
                               .num_tiles = std::max<std::int64_t>(device::tiles_of(demand.aligned_rows), 1)},
        weights, stream);
  device::UniqueMlpShape shape{.dtype = shuffle.dtype,
                               .hidden = shuffle.hidden,
                               .ffn = config.ffn,
                               .num_experts = plan.num_local_experts(),
                               .topk = shuffle.topk,
                               .max_expert_rows = demand.most_rows,
                               .num_chunks = config.num_chunks()};
  shape.tiles_per_chunk = std::max<std::int64_t>(device::count_tiles(shape, view_of(plan), stream), 1);
  return std::make_unique<TokenUnique>(shape, weights, stream);
}

}  // namespace shunt::bench
