// Compares tokens that a layer has changed with what the host makes of them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/layer/config.hpp"
#include "cli/shuffle/workload.hpp"
#include "kernels/cuda/mlp/expert_mlp.hpp"
#include "layer/reference_expert.hpp"

namespace shunt::cli {

/// For one rank's tokens; reads weights of all ranks' experts from the device.
class TokenCheck {
 public:
  TokenCheck(const LayerConfig& config, const Workload& workload, std::size_t rank,
             std::vector<device::ExpertWeights> weights_of_ranks, cudaStream_t stream)
      : config_(config),
        workload_(workload),
        rank_(rank),
        weights_of_ranks_(std::move(weights_of_ranks)),
        stream_(stream) {}

  /// Relative to the norm of what it should be. Throws Error(internal) if rounding does not explain it.
  [[nodiscard]] double error_of(std::int64_t token, std::span<const std::byte> result) const;

 private:
  [[nodiscard]] std::vector<float> expected(std::int64_t token) const;
  [[nodiscard]] ReferenceExpert download_expert(std::int32_t expert) const;

  const LayerConfig& config_;
  const Workload& workload_;
  std::size_t rank_;
  std::vector<device::ExpertWeights> weights_of_ranks_;
  cudaStream_t stream_;
};

}  // namespace shunt::cli
