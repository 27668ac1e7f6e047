// Compares tokens that a layer has changed with what plain loops make of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "cli/shuffle/workload.hpp"
#include "layer/reference_expert.hpp"

namespace shunt::cli {

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

}  // namespace shunt::cli
