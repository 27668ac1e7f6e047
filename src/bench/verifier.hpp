// Compares what a system gives with the definition, before anything is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "layer/reference_expert.hpp"
#include "shunt/tensor.hpp"

namespace shunt::bench {

/// In which order a token's rows are summed.
enum class SumOrder {
  tree,     ///< experts ascending within a rank, ranks within a node, nodes
  routing,  ///< as the router listed them
};

/// Works on one rank's part with plain loops; throws Error(internal) that says what differs.
class Verifier {
 public:
  Verifier(const ShuffleConfig& config, const Workload& workload, std::size_t rank)
      : config_(config), workload_(workload), rank_(rank), map_(config.map()), topology_(config.topology()) {}

  void check_dispatch(const std::string& system, Layout layout, const ConstTensor& rows,
                      std::span<const float> scales) const;
  /// What the stand-in experts make of the rows that should have come.
  void fill_expert_out(Layout layout, const Tensor& expert_out) const;
  void check_combine(const std::string& system, Layout layout, SumOrder order, const ConstTensor& result) const;

 private:
  /// A row that this rank should receive.
  struct Delivery {
    std::size_t source;
    std::int64_t token;
    std::int64_t slot;
    float factor;  ///< what the stand-in expert, or the whole layer in `token_unique`, multiplies it with
  };
  /// A row that one of this rank's tokens gets back.
  struct Answer {
    RankId rank;
    float factor;
    float weight;
  };

  [[nodiscard]] std::vector<Delivery> deliveries(Layout layout) const;
  [[nodiscard]] std::vector<Delivery> deliveries_to_experts(Layout layout) const;
  [[nodiscard]] std::vector<Delivery> deliveries_to_rank() const;
  [[nodiscard]] std::vector<Answer> answers(std::size_t source, std::int64_t token, Layout layout,
                                            SumOrder order) const;
  /// What the stand-in for an expert multiplies rows with; of all its copies.
  [[nodiscard]] float factor_of(PhysicalId copy) const { return Workload::expert_factor(map_.logical(copy).value); }

  void fill_sent_row(std::size_t source, std::int64_t token, std::vector<std::byte>& row,
                     std::vector<float>& scales) const;
  void fill_expert_row(std::size_t source, std::int64_t token, float factor, std::byte* row) const;
  void sum(std::size_t source, std::int64_t token, std::span<const Answer> answers, SumOrder order,
           std::span<float> result) const;

  const ShuffleConfig& config_;
  const Workload& workload_;
  std::size_t rank_;
  ExpertMap map_;
  Topology topology_;
};

/// For one rank's tokens.
class TokenCheck {
 public:
  /// expert_of: by logical expert.
  TokenCheck(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
             std::function<ReferenceExpert(std::int32_t)> expert_of)
      : config_(config), workload_(workload), rank_(rank), expert_of_(std::move(expert_of)) {}

  /// Of `count` tokens, spread over the rank's: the largest error of their rows in `result` ([tokens, hidden]),
  /// relative to the norm of what they should be under the rank's routing. Throws Error(internal) that names `system`
  /// if rounding does not explain one.
  [[nodiscard]] double largest_error(const std::string& system, const RankRouting& routing,
                                     std::span<const std::byte> result, std::int64_t count) const;

 private:
  const ShuffleConfig& config_;
  const Workload& workload_;
  std::size_t rank_;
  std::function<ReferenceExpert(std::int32_t)> expert_of_;
};

}  // namespace shunt::bench
