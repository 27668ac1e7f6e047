// The conventional shuffle: permute k copies into the order of their destinations, all-to-all, permute into
// expert-major order; and backwards, ending in a weighted sum. What carries the rows is exchangeable.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/system.hpp"
#include "cli/shuffle/workload.hpp"
#include "kernels/store.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Moves rows between ranks in runs: run (r → s) of rank r's send buffer becomes run r of rank s's receive buffer.
class AllToAll {
 public:
  virtual ~AllToAll() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Every rank's `mine`, concatenated by rank; all of equal length.
  virtual std::vector<std::int32_t> all_gather(std::span<const std::int32_t> mine) = 0;
  /// Buffers for rows of the coming counts, in rows per peer.
  struct Buffers {
    std::byte* send;
    std::byte* receive;
  };
  virtual Buffers prepare(std::span<const std::int32_t> send_counts, std::span<const std::int32_t> receive_counts) = 0;
  virtual void forward() = 0;
  virtual void backward() = 0;
};

class StagedSystem final : public System {
 public:
  /// `store` is how the permutes write.
  StagedSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
               std::shared_ptr<AllToAll> all_to_all, Store store);

  [[nodiscard]] std::string name() const override { return all_to_all_->name(); }
  void plan() override;
  ConstTensor dispatch() override;
  Tensor expert_out() override;
  ConstTensor combine() override;
  /// Each of three passes reads and writes every copy.
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t, std::uint64_t sent) const override { return 6 * sent; }

 private:
  void order_by_expert(const ExpertMap& map);
  void place_received(const ExpertMap& map, std::span<const std::int32_t> counts);

  const ShuffleConfig& config_;
  const RankRouting& routing_;
  std::size_t rank_;
  Tensor tokens_;
  std::shared_ptr<AllToAll> all_to_all_;
  Store store_;

  std::vector<std::int32_t> counts_;         // rows this rank sends to each physical expert
  std::vector<std::int32_t> sent_token_;     // by position in the send buffer
  std::vector<std::int32_t> sent_position_;  // [tokens, topk]: where each copy stands there; −1: dropped
  std::vector<std::int32_t> received_slot_;  // by position in the receive buffer
  AllToAll::Buffers buffers_{};
  std::vector<std::byte> rows_;
  std::vector<std::byte> expert_out_;
  std::vector<std::byte> result_;
};

}  // namespace shunt::cli
