// The conventional shuffle, as the benchmark drives it.
#pragma once

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/system.hpp"
#include "cli/shuffle/workload.hpp"
#include "layer/conventional_exchange.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

class StagedSystem final : public System {
 public:
  /// `store` is how the permutes write.
  StagedSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
               std::shared_ptr<AllToAll> all_to_all, Store store)
      : map_(config.map()),
        routing_(workload.routing(world.rank().index()).view(config.topk)),
        tokens_(tokens),
        exchange_(world.rank(), world.topology(), std::move(all_to_all), {config.hidden, tokens.dtype, store}) {}

  [[nodiscard]] std::string name() const override { return exchange_.all_to_all().name(); }
  void plan() override { exchange_.plan(routing_, map_); }
  ConstTensor dispatch() override { return exchange_.dispatch(tokens_); }
  Tensor expert_out() override { return exchange_.expert_out(); }
  ConstTensor combine() override { return exchange_.combine(); }
  /// Each of three passes reads and writes every copy.
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t, std::uint64_t sent) const override { return 6 * sent; }

 private:
  ExpertMap map_;
  Routing routing_;
  Tensor tokens_;
  ConventionalExchange exchange_;
};

}  // namespace shunt::cli
