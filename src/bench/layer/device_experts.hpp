// The experts of a rank, as the benchmark of a layer drives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bench/layer/config.hpp"
#include "kernels/cuda/mlp/expert_mlp.hpp"
#include "shunt/plan.hpp"
#include "shunt/stream.hpp"
#include "shunt/tensor.hpp"

namespace shunt::bench {

class LayerExperts {
 public:
  virtual ~LayerExperts() = default;

  /// Puts the work on the stream. rows: what dispatch delivered; out: what combine takes.
  virtual void run(const Plan& plan, const Tensor& rows, const Tensor& out) = 0;
  /// Once its work is done: throws if there were more rows than it has room for.
  virtual void check() {}

  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;
  /// With what fills tiles up, and tiles that this routing does not need.
  [[nodiscard]] virtual std::int64_t rows_computed() const = 0;
};

/// With room for what this plan brings to this rank, and no more: on one device, what is computed in vain on a rank
/// with few rows would be taken from others.
std::unique_ptr<LayerExperts> make_layer_experts(const LayerConfig& config, const LayerDemand& demand, const Plan& plan,
                                                 const device::ExpertWeights& weights, Stream stream);

}  // namespace shunt::bench
