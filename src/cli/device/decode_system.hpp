// shunt's decoder as a system of the benchmark.
#pragma once

#include "cli/device/system.hpp"
#include "cli/shuffle/config.hpp"
#include "cli/shuffle/workload.hpp"
#include "shunt/device_decoder.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

class DeviceDecodeSystem final : public DeviceSystem {
 public:
  /// Collective. x: this rank's tokens.
  DeviceDecodeSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& x,
                     Stream stream);

  [[nodiscard]] std::string name() const override { return "shunt"; }
  [[nodiscard]] Layout layout() const override { return Layout::padded; }
  [[nodiscard]] SumOrder order() const override { return SumOrder::tree; }
  void plan() override {}
  void dispatch() override;
  void combine() override { (void)decoder_.combine({.out = result_}); }
  [[nodiscard]] bool takes_turns() const override { return true; }
  [[nodiscard]] ConstTensor rows() const override { return decoder_.rows(); }
  [[nodiscard]] ConstTensor scales() const override { return decoder_.row_scales(); }
  [[nodiscard]] Tensor expert_out() const override { return decoder_.expert_out(); }
  [[nodiscard]] ConstTensor result() const override { return result_; }
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const override {
    return tokens + delivered;
  }

 private:
  const ShuffleConfig& config_;
  std::shared_ptr<std::int32_t> experts_;
  std::shared_ptr<float> weights_;
  Tensor x_;
  DeviceHeap heap_;
  DeviceDecoder decoder_;
  Tensor result_;
};

}  // namespace shunt::cli
