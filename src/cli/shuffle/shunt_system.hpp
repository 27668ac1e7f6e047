// shunt itself: one pass, into the final slots.
#pragma once

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/system.hpp"
#include "cli/shuffle/workload.hpp"
#include "shunt/engine.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

class ShuntSystem final : public System {
 public:
  ShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
              Forwarders forwarders);

  [[nodiscard]] std::string name() const override { return forwarders_ == Forwarders::rotated ? "rotation" : "shunt"; }
  void plan() override;
  ConstTensor dispatch() override;
  Tensor expert_out() override;
  ConstTensor combine() override;
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t sent) const override {
    return tokens + sent;
  }
  [[nodiscard]] bool sends_once_per_rank() const override { return config_.layout == Layout::token_unique; }

  [[nodiscard]] const Rows& rows() const { return rows_; }
  /// After plan(): whether the ranks are on several hosts.
  [[nodiscard]] bool sends_to_hosts() const;
  /// After plan(): what this rank's dispatch sends to each rank of another host.
  [[nodiscard]] std::vector<std::uint64_t> bytes_to_far() const;
  /// After plan(): of all ranks' rows.
  [[nodiscard]] Traffic traffic() const { return plan_.traffic(config_.row_bytes()); }

 private:
  const ShuffleConfig& config_;
  Routing routing_;
  Tensor tokens_;
  ExpertMap map_;
  Forwarders forwarders_;
  Engine engine_;
  Plan plan_;
  Rows rows_;
  Tensor expert_out_;
  Tensor result_;
};

}  // namespace shunt::cli
