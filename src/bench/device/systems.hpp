// Systems under test that shuffle rows on a device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/device/memory.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "bench/verifier.hpp"
#include "core/cuda/segment.hpp"
#include "shunt/engine.hpp"
#include "shunt/tensor.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// plan(), dispatch() and combine() are collective, launch their work on this rank's stream and don't wait for it.
/// Tensors are in device memory.
class DeviceSystem {
 public:
  virtual ~DeviceSystem() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual ShuffleKind kind() const = 0;

  virtual void plan() = 0;
  virtual void dispatch() = 0;
  virtual void combine() = 0;
  /// The kernels of dispatch and combine without barriers, if has_kernels().
  [[nodiscard]] virtual bool has_kernels() const { return false; }
  virtual void dispatch_kernel() {}
  virtual void combine_kernel() {}
  /// True if every dispatch must be followed by a combine.
  [[nodiscard]] virtual bool alternates() const { return false; }
  /// Throws the Error of a device fault. Call after the work is done.
  virtual void check() {}

  [[nodiscard]] virtual ConstTensor rows() const = 0;
  /// Counts of the rows that dispatch() delivered, after its work is done; see Delivered.
  [[nodiscard]] virtual std::int64_t num_rows() const = 0;
  [[nodiscard]] virtual std::vector<std::int64_t> row_counts() const = 0;
  /// Scales of fp8 rows; otherwise empty.
  [[nodiscard]] virtual ConstTensor scales() const { return {}; }
  [[nodiscard]] virtual Tensor expert_out() const = 0;
  [[nodiscard]] virtual ConstTensor result() const = 0;

  /// Rows read plus rows written by one dispatch of all ranks, given their tokens and the rows they deliver.
  [[nodiscard]] virtual std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const = 0;
};

/// shunt with the layouts `expert_major` and `token_unique`, and bounded plans.
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
  std::shared_ptr<std::uint32_t> no_stop_;
};

/// shunt with the layout `padded`, for few tokens.
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
  [[nodiscard]] bool alternates() const override { return true; }
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
  Rows rows_;  // owned by the engine, the same for every plan
  Tensor expert_out_;
  Tensor result_;
};

/// The conventional shuffle: permute, copy, permute. Ranks are threads of one process. Rows are gathered by expert into
/// a send buffer, copied as one run per pair of ranks by cudaMemcpyAsync, and permuted into expert order. Combine
/// reverses this and sums with the same kernel as shunt. All positions are computed beforehand: planning is not timed.
class DeviceUnfusedSystem final : public DeviceSystem {
 public:
  /// Collective.
  DeviceUnfusedSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& x,
                      cudaStream_t stream);
  ~DeviceUnfusedSystem() override;

  [[nodiscard]] std::string name() const override { return "unfused"; }
  [[nodiscard]] ShuffleKind kind() const override { return {Layout::expert_major, SumOrder::routing, x_.dtype}; }
  void plan() override {}
  void dispatch() override;
  void combine() override;
  [[nodiscard]] ConstTensor rows() const override { return rows_; }
  [[nodiscard]] std::int64_t num_rows() const override { return rows_.rows; }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override { return row_counts_; }
  [[nodiscard]] Tensor expert_out() const override { return expert_out_; }
  [[nodiscard]] ConstTensor result() const override { return result_; }
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t, std::uint64_t delivered) const override {
    return 6 * delivered;
  }

 private:
  /// A run of rows sent to a peer and back.
  struct Run {
    std::int64_t here;   // first row in this rank's send buffer
    std::int64_t there;  // first row in the peer's receive buffer
    std::int64_t rows;
  };
  struct Buffers {
    std::byte* receive;
    cudaEvent_t copied;
  };

  void find_runs(const Workload& workload);
  void permute(const ConstTensor& from, const Tensor& to, const std::shared_ptr<device::Segment>& order,
               std::int64_t num_rows, const std::shared_ptr<std::byte*>& base) const;
  void wait_for_copies();

  World& world_;
  const ShuffleConfig& config_;
  std::size_t rank_;
  cudaStream_t stream_;
  Tensor x_;
  std::vector<Run> runs_;  // by peer
  std::vector<std::int64_t> row_counts_;
  std::vector<device::Segment> gather_, scatter_, unscatter_;
  std::vector<device::Term> terms_;
  std::shared_ptr<device::Segment> gather_list_, scatter_list_, unscatter_list_;
  std::shared_ptr<device::Term> term_list_;
  Tensor send_, receive_, rows_, expert_out_, result_;
  std::shared_ptr<std::byte*> send_base_, receive_base_, rows_base_;
  std::shared_ptr<std::uint32_t> no_stop_;
  cudaEvent_t copied_ = nullptr;
  std::vector<Buffers> peers_;
};

}  // namespace shunt::bench
