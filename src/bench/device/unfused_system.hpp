// The conventional shuffle on a device: permute, copy, permute, each as fast as the device allows.
#pragma once

#include <cuda_runtime_api.h>

#include "bench/device/systems.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "core/cuda/segment.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// Ranks are threads of one process. Rows are gathered by expert into a send buffer, copied to their ranks as one run
/// per pair by cudaMemcpyAsync, and brought into expert order there; back the same way, then summed by the same kernel
/// as shunt's. What is where is known beforehand: planning is not timed.
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
  /// A run of rows to or from a peer.
  struct Run {
    std::int64_t here;   // first row in this rank's send buffer
    std::int64_t there;  // … in the peer's receive buffer
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
  std::shared_ptr<std::uint32_t> never_;
  cudaEvent_t copied_ = nullptr;
  std::vector<Buffers> peers_;
};

}  // namespace shunt::bench
