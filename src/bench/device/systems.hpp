// Ways to shuffle on a device, as the benchmark drives them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/device/memory.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "bench/verifier.hpp"
#include "shunt/engine.hpp"
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
  void check() override { engine_.check(); }
  [[nodiscard]] ConstTensor rows() const override { return rows_; }
  [[nodiscard]] std::int64_t num_rows() const override { return plan_.read().num_rows; }
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
  UploadedRouting routing_;
  Tensor x_;
  std::int64_t max_rows_;
  Engine engine_;
  Plan plan_;
  Tensor rows_;
  Tensor scales_;  // of fp8 rows
  Tensor expert_out_;
  Tensor result_;
  std::shared_ptr<std::byte*> rows_of_ranks_;
  std::shared_ptr<std::byte*> scales_of_ranks_;
  std::shared_ptr<std::byte*> expert_out_of_ranks_;
  std::shared_ptr<std::uint32_t> never_;
};

/// Rows in the `padded` layout, for few tokens.
class DevicePaddedSystem final : public DeviceSystem {
 public:
  /// Collective. x: this rank's tokens.
  DevicePaddedSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& x,
                     Stream stream);

  [[nodiscard]] std::string name() const override { return "shunt"; }
  [[nodiscard]] ShuffleKind kind() const override {
    return {Layout::padded, SumOrder::tree, config_.dtype, config_.tokens};
  }
  void plan() override;
  void dispatch() override { rows_ = engine_.dispatch(plan_, x_).wait_on(engine_.stream()); }
  void combine() override { (void)engine_.combine(plan_, expert_out_, {.out = result_}); }
  [[nodiscard]] bool takes_turns() const override { return true; }
  void check() override { engine_.check(); }
  [[nodiscard]] ConstTensor rows() const override { return rows_.data; }
  [[nodiscard]] std::int64_t num_rows() const override { return rows_.data.rows; }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override;
  [[nodiscard]] ConstTensor scales() const override { return rows_.scales; }
  [[nodiscard]] Tensor expert_out() const override { return expert_out_; }
  [[nodiscard]] ConstTensor result() const override { return result_; }
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const override {
    return tokens + delivered;
  }

 private:
  const ShuffleConfig& config_;
  ExpertMap map_;
  UploadedRouting routing_;
  Tensor x_;
  Engine engine_;
  Plan plan_;
  Rows rows_;  // the engine's own, the same for every plan
  Tensor expert_out_;
  Tensor result_;
};

}  // namespace shunt::bench
