// Systems under test that shuffle rows in host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "bench/verifier.hpp"
#include "layer/all_to_all.hpp"
#include "layer/conventional_exchange.hpp"
#include "shunt/engine.hpp"
#include "shunt/tensor.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// A system under test. Every call is collective and blocking. Rows are expert-major unless kind() differs.
class System {
 public:
  virtual ~System() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual ShuffleKind kind() const = 0;

  /// Does all work that depends on the routing alone.
  virtual void plan() = 0;
  /// This rank's rows; valid until the next call.
  virtual ConstTensor dispatch() = 0;
  /// Scales and counts of the rows that dispatch() delivered; see Delivered.
  [[nodiscard]] virtual std::span<const float> scales() const { return {}; }
  [[nodiscard]] virtual std::vector<std::int64_t> row_counts() const = 0;
  /// The buffer for the experts' outputs; valid until it is requested again after another plan().
  virtual Tensor expert_out() = 0;
  /// The result of combining expert_out(); valid until the next call.
  virtual ConstTensor combine() = 0;

  /// Rows read plus rows written by one dispatch of this rank, given its tokens and the (token, expert) pairs it sends.
  [[nodiscard]] virtual std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t sent) const = 0;
};

/// Collective: runs plan, dispatch and combine once and verifies each. name: for error messages.
void verify(const std::string& name, System& system, const Verifier& verifier);

/// shunt: one pass, into the final slots.
class ShuntSystem final : public System {
 public:
  ShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
              Forwarders forwarders);

  [[nodiscard]] std::string name() const override { return forwarders_ == Forwarders::rotated ? "rotation" : "shunt"; }
  [[nodiscard]] ShuffleKind kind() const override {
    return {config_.layout, SumOrder::tree, config_.dtype, max_tokens()};
  }
  void plan() override;
  ConstTensor dispatch() override;
  [[nodiscard]] std::span<const float> scales() const override { return rows_.scales.as<const float>(); }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override;
  Tensor expert_out() override;
  ConstTensor combine() override;
  [[nodiscard]] std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t sent) const override {
    return tokens + sent;
  }

  /// After plan(): true if the ranks are on several machines.
  [[nodiscard]] bool spans_machines() const;
  /// After plan(): bytes that this rank's dispatch sends to each rank of another machine.
  [[nodiscard]] std::vector<std::uint64_t> bytes_to_far() const;
  /// After plan(): traffic of all ranks.
  [[nodiscard]] Traffic traffic() const { return plan_.traffic(config_.row_bytes()); }

 private:
  [[nodiscard]] std::int64_t max_tokens() const {
    return config_.layout == Layout::padded ? std::max<std::int64_t>(config_.tokens, 1) : 0;
  }

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

/// The conventional shuffle: permute, all-to-all, permute.
class StagedSystem final : public System {
 public:
  /// store: kind of stores in the permutes.
  StagedSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
               std::shared_ptr<AllToAll> all_to_all, Store store)
      : map_(config.map()),
        routing_(workload.routing(world.rank().index()).view(config.topk)),
        tokens_(tokens),
        exchange_(world.rank(), world.topology(), std::move(all_to_all), {config.hidden, tokens.dtype, store}) {}

  [[nodiscard]] std::string name() const override { return exchange_.all_to_all().name(); }
  [[nodiscard]] ShuffleKind kind() const override { return {Layout::expert_major, SumOrder::routing, tokens_.dtype}; }
  void plan() override { exchange_.plan(routing_, map_); }
  ConstTensor dispatch() override { return exchange_.dispatch(tokens_); }
  [[nodiscard]] std::vector<std::int64_t> row_counts() const override {
    return {exchange_.expert_counts().begin(), exchange_.expert_counts().end()};
  }
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

/// Why `mpi_alltoallv` can't run in this process; empty if it can.
std::string why_no_mpi();

/// Open MPI's all-to-all, for the `mpi_alltoallv` baseline. Initialises MPI, and finalises it when destroyed. Call only
/// if why_no_mpi() is empty.
std::shared_ptr<AllToAll> make_mpi_all_to_all(const ShuffleConfig& config);

}  // namespace shunt::bench
