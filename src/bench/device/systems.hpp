// Ways to shuffle on a device, as the benchmark drives them.
#pragma once

#include <string>

#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "bench/verifier.hpp"
#include "shunt/device_decoder.hpp"
#include "shunt/device_engine.hpp"
#include "shunt/tensor.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// plan(), dispatch() and combine() are collective, put their work on this rank's stream and don't wait for it. Tensors
/// are device memory.
class DeviceSystem {
 public:
  virtual ~DeviceSystem() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual ShuffleKind kind() const = 0;

  virtual void plan() = 0;
  virtual void dispatch() = 0;
  virtual void combine() = 0;
  /// The kernels of dispatch and combine alone, without signals, where has_kernels().
  [[nodiscard]] virtual bool has_kernels() const { return false; }
  virtual void dispatch_kernel() {}
  virtual void combine_kernel() {}
  /// Every dispatch must be followed by a combine.
  [[nodiscard]] virtual bool takes_turns() const { return false; }
  /// Throws what went wrong on the device, once its work is done.
  virtual void check() {}

  [[nodiscard]] virtual ConstTensor rows() const = 0;
  /// Of what dispatch() delivered, once its work is done: as in Delivered.
  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> row_counts() const = 0;
  /// Of fp8 rows; else empty.
  [[nodiscard]] virtual ConstTensor scales() const { return {}; }
  [[nodiscard]] virtual Tensor expert_out() const = 0;
  [[nodiscard]] virtual ConstTensor result() const = 0;

  /// Rows read plus rows written by one dispatch of all ranks, given their tokens and the rows they deliver.
  [[nodiscard]] virtual std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const = 0;
};

class DeviceShuntSystem final : public DeviceSystem {
 public:
  /// Collective. x: this rank's tokens.
  DeviceShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& x,
                    Stream stream);

  [[nodiscard]] std::string name() const override { return "shunt"; }
  [[nodiscard]] ShuffleKind kind() const override { return {config_.layout, SumOrder::tree, config_.dtype}; }
  void plan() override;
  void dispatch() override;
  void combine() override;
  [[nodiscard]] bool has_kernels() const override { return true; }
  void dispatch_kernel() override;
  void combine_kernel() override;
  void check() override;
  [[nodiscard]] ConstTensor rows() const override { return rows_; }
  [[nodiscard]] std::int64_t num_rows() const override { return plan_.sizes().num_rows; }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override;
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

class DeviceDecodeSystem final : public DeviceSystem {
 public:
  /// Collective. x: this rank's tokens.
  DeviceDecodeSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& x,
                     Stream stream);

  [[nodiscard]] std::string name() const override { return "shunt"; }
  [[nodiscard]] ShuffleKind kind() const override {
    return {Layout::padded, SumOrder::tree, config_.dtype, config_.tokens};
  }
  void plan() override {}
  void dispatch() override;
  void combine() override { (void)decoder_.combine({.out = result_}); }
  [[nodiscard]] bool takes_turns() const override { return true; }
  [[nodiscard]] ConstTensor rows() const override { return decoder_.rows(); }
  [[nodiscard]] std::int64_t num_rows() const override { return decoder_.rows().rows; }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override;
  [[nodiscard]] ConstTensor scales() const override { return decoder_.row_scales(); }
  [[nodiscard]] Tensor expert_out() const override { return decoder_.expert_out(); }
  [[nodiscard]] ConstTensor result() const override { return result_; }
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const override {
    return tokens + delivered;
  }

 private:
  const ShuffleConfig& config_;
  std::size_t num_runs_;  // of local experts and ranks
  std::shared_ptr<std::int32_t> experts_;
  std::shared_ptr<float> weights_;
  Tensor x_;
  DeviceHeap heap_;
  DeviceDecoder decoder_;
  Tensor result_;
};

}  // namespace shunt::bench
