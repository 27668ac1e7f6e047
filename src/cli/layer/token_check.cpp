#include "cli/layer/token_check.hpp"

#include <algorithm>

#include "core/fail.hpp"

namespace shunt::cli {

double TokenCheck::largest_error(const std::string& system, const RankRouting& routing,
                                 std::span<const std::byte> result, std::int64_t count) const {
  const auto topk = static_cast<std::size_t>(config_.topk);
  const double tolerance = tolerance_of(config_.dtype);
  double largest = 0;
  count = std::min(count, config_.tokens);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t token = i * config_.tokens / count;
    const auto index = static_cast<std::size_t>(token);
    std::vector<std::byte> x(config_.row_bytes());
    workload_.fill_row(rank_, token, x.data());
    const std::vector<float> expected =
        reference_token(widened(x, config_.dtype), std::span(routing.experts).subspan(index * topk, topk),
                        std::span(routing.weights).subspan(index * topk, topk), expert_of_);
    const double error = relative_error(widened(result.subspan(index * x.size(), x.size()), config_.dtype), expected);
    if (!(error <= tolerance))  // NaN included
      fail(ErrorCode::internal,
           "{}, rank {}: token {} is off by {:.1e} of its norm, more than the {:.0e} that rounding explains", system,
           rank_, token, error, tolerance);
    largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace shunt::cli
