// Compares what a system gives with the definition, before anything is timed.
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

/// How a system shuffles, as far as its output shows it.
struct ShuffleKind {
  Layout layout;
  SumOrder order;
  DType row_dtype;
  std::int64_t max_tokens = 0;  ///< `padded` only: as in PlanOptions
};

/// What a system's dispatch left on a rank, in host memory.
struct Delivered {
  ConstTensor rows;               ///< may have room for more than came
  std::int64_t num_rows;          ///< that came; in `padded` those that there is room for
  std::span<const float> scales;  ///< of fp8 rows, else empty
  /// [local experts], or in `padded` [local experts, ranks]: rows that came for each, as the system counts them.
  std::vector<std::int64_t> row_counts;
};

/// Works on one rank's part with the reference, which shares no planner and no kernel with what is measured. Throws
/// Error(internal) that says what differs.
class Verifier {
 public:
  Verifier(const ShuffleConfig& config, const Workload& workload, std::size_t rank, const ShuffleKind& kind);

  /// How many rows came for every expert, and every bit of them.
  void check_dispatch(const std::string& system, const Delivered& delivered) const;
  /// What the stand-in experts make of the rows that should have come.
  void fill_expert_out(const Tensor& expert_out) const;
  void check_combine(const std::string& system, const ConstTensor& result) const;

 private:
  /// A token's row as it is sent, and as experts see it.
  struct Sent {
    std::vector<std::byte> bytes;
    std::vector<float> scales;
    std::vector<float> values;
  };
  /// A row that a token has on a rank.
  struct Place {
    RankId rank;
    ExpertId expert;  ///< none in `token_unique`
    std::int32_t choice;
    std::int64_t slot;
    float factor;  ///< what the stand-in expert, or the whole layer in `token_unique`, multiplies it with
    float weight;  ///< of the result in combine
  };

  void check_counts(const std::string& system, const Delivered& delivered) const;
  [[nodiscard]] std::vector<Place> places(std::size_t source, std::int64_t token) const;
  [[nodiscard]] Sent sent(std::size_t source, std::int64_t token) const;
  [[nodiscard]] std::vector<float> result_of(std::int64_t token) const;
  /// visit(source, token, row, place) for every row that this rank should receive.
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
