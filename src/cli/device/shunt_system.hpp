// shunt's device engine as a system of the benchmark.
#pragma once

#include "cli/device/system.hpp"
#include "cli/shuffle/config.hpp"
#include "cli/shuffle/workload.hpp"
#include "shunt/device_engine.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

class DeviceShuntSystem final : public DeviceSystem {
 public:
  /// Collective. x: this rank's tokens.
  DeviceShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& x,
                    Stream stream);

  [[nodiscard]] std::string name() const override { return "shunt"; }
  [[nodiscard]] Layout layout() const override { return config_.layout; }
  [[nodiscard]] SumOrder order() const override { return SumOrder::tree; }
  void plan() override;
  void dispatch() override;
  void combine() override;
  [[nodiscard]] bool has_kernels() const override { return true; }
  void dispatch_kernel() override;
  void combine_kernel() override;
  void check() override;
  [[nodiscard]] ConstTensor rows() const override { return rows_; }
  [[nodiscard]] ConstTensor scales() const override { return scales_; }
  [[nodiscard]] Tensor expert_out() const override { return expert_out_; }
  [[nodiscard]] ConstTensor result() const override { return result_; }
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const override {
    return tokens + delivered;
  }

 private:
  const ShuffleConfig& config_;
  ExpertMap map_;
  std::shared_ptr<std::int32_t> experts_;
  std::shared_ptr<float> weights_;
  Tensor x_;
  DeviceHeap heap_;
  DeviceEngine engine_;
  std::int64_t max_rows_ = 0;
  DevicePlan plan_;
  Tensor rows_;
  Tensor scales_;  // of fp8 rows
  Tensor expert_out_;
  Tensor result_;
  std::shared_ptr<std::byte*> rows_of_ranks_;
  std::shared_ptr<std::byte*> scales_of_ranks_;
  std::shared_ptr<std::byte*> expert_out_of_ranks_;
  std::shared_ptr<std::uint32_t> never_;
};

}  // namespace shunt::cli
