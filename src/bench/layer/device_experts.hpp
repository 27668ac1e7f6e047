// The experts of a rank in the device benchmark of a layer.
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

  /// Launches the work on the stream. rows: output of dispatch; out: input of combine.
  virtual void run(const Plan& plan, const Tensor& rows, const Tensor& out) = 0;
  /// Once its work is done: throws if there were more rows than it has room for.
  virtual void check() {}

  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;
  /// Rows computed, including padding and tiles that this routing does not need.
  [[nodiscard]] virtual std::int64_t rows_computed() const = 0;
};

/// Makes experts with tiles for exactly the rows of this plan on this rank: ranks share a device, so unused tiles of a
/// rank would slow down the others.
std::unique_ptr<LayerExperts> make_layer_experts(const LayerConfig& config, const LayerDemand& demand, const Plan& plan,
                                                 const device::ExpertWeights& weights, Stream stream);

}  // namespace shunt::bench
