// Compares a system's output with the reference before anything is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/reference/expert.hpp"
#include "bench/reference/plan.hpp"
#include "bench/reference/shuffle.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "shunt/tensor.hpp"

namespace shunt::bench {

/// The properties of a system that determine its output.
struct ShuffleKind {
  Layout layout;
  SumOrder order;
  DType row_dtype;
  std::int64_t max_tokens = 0;  ///< `padded` only: PlanOptions::max_tokens
};

/// The output of a system's dispatch on a rank, in host memory.
struct Delivered {
  ConstTensor rows;               ///< may be larger than num_rows
  std::int64_t num_rows;          ///< rows received; in `padded` the capacity
  std::span<const float> scales;  ///< of fp8 rows, else empty
  /// [local experts], or in `padded` [local experts, ranks]: rows received for each, as counted by the system.
  std::vector<std::int64_t> row_counts;
};

/// Checks one rank's output with the reference, which shares no planner and no kernel with the systems. Throws
/// Error(internal) that names the difference.
class Verifier {
 public:
  Verifier(const ShuffleConfig& config, const Workload& workload, std::size_t rank, const ShuffleKind& kind);

  /// Checks the number of rows for every expert, and every bit of the rows.
  void check_dispatch(const std::string& system, const Delivered& delivered) const;
  /// Fills expert_out with the stand-in experts' outputs for the expected rows.
  void fill_expert_out(const Tensor& expert_out) const;
  void check_combine(const std::string& system, const ConstTensor& result) const;

 private:
  /// A token's row as bytes on the wire, and as values for the experts.
  struct SentRow {
    std::vector<std::byte> bytes;
    std::vector<float> scales;
    std::vector<float> values;
  };
  /// One row of a token on a rank.
  struct Delivery {
    RankId rank;
    ExpertId expert;  ///< none in `token_unique`
    std::int32_t choice;
    std::int64_t slot;
    float factor;  ///< factor of the stand-in expert, or in `token_unique` of all experts of the rank
    float weight;  ///< weight in combine
  };

  void check_counts(const std::string& system, const Delivered& delivered) const;
  [[nodiscard]] std::vector<Delivery> deliveries(std::size_t source, std::int64_t token) const;
  [[nodiscard]] SentRow sent(std::size_t source, std::int64_t token) const;
  [[nodiscard]] std::vector<float> result_of(std::int64_t token) const;
  /// visit(source, token, row, delivery) for every row that this rank should receive.
  template <class Visit>
  void for_each_delivery(const Visit& visit) const;

  const ShuffleConfig& config_;
  const Workload& workload_;
  std::size_t rank_;
  ShuffleKind kind_;
  ExpertMap map_;
  Topology topology_;
  ReferencePlan plan_;
};

/// Checks a layer's results for tokens of one rank.
class TokenCheck {
 public:
  /// expert_of: returns the reference expert with that logical index.
  TokenCheck(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
             std::function<ReferenceExpert(std::int32_t)> expert_of)
      : config_(config), workload_(workload), rank_(rank), expert_of_(std::move(expert_of)) {}

  /// Returns the largest error of `count` tokens, spread over the rank's tokens: their rows in `result` ([tokens,
  /// hidden]) compared with the reference for the rank's routing, relative to its norm. Throws Error(internal) that
  /// names `system` if an error exceeds the tolerance for rounding.
  [[nodiscard]] double largest_error(const std::string& system, const RankRouting& routing,
                                     std::span<const std::byte> result, std::int64_t count) const;

 private:
  const ShuffleConfig& config_;
  const Workload& workload_;
  std::size_t rank_;
  std::function<ReferenceExpert(std::int32_t)> expert_of_;
};

}  // namespace shunt::bench
