#include "cli/layer/token_check.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

ReferenceExpert TokenCheck::download_expert(std::int32_t expert) const {
  const ShuffleConfig& shuffle = config_.shuffle;
  const ExpertMap map = shuffle.map();
  const RankId owner = map.rank(map.copies(ExpertId(expert)).front());
  const auto local = static_cast<std::size_t>(expert - map.first_physical(owner).value);
  const auto download = [&](const std::byte* weights, std::int64_t count) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(shuffle.dtype));
    device::check(
        cudaMemcpyAsync(bytes.data(), weights + local * bytes.size(), bytes.size(), cudaMemcpyDeviceToHost, stream_),
        "download weights");
    device::check(cudaStreamSynchronize(stream_), "download weights");
    return widened(bytes, shuffle.dtype);
  };
  const device::ExpertWeights& weights = weights_of_ranks_[owner.index()];
  return {shuffle.hidden, config_.ffn, shuffle.dtype, download(weights.gate_up, 2 * config_.ffn * shuffle.hidden),
          download(weights.down, shuffle.hidden * config_.ffn)};
}

// Experts ascending within a rank, then ranks; in `token_unique` a rank's sum travels, rounded.
std::vector<float> TokenCheck::expected(std::int64_t token) const {
  const ShuffleConfig& shuffle = config_.shuffle;
  const ExpertMap map = shuffle.map();
  const auto topk = static_cast<std::size_t>(shuffle.topk);
  const RankRouting& routing = workload_.routing(rank_);
  std::vector<std::pair<std::int32_t, float>> choices;
  for (std::size_t entry = static_cast<std::size_t>(token) * topk; entry < (static_cast<std::size_t>(token) + 1) * topk;
       ++entry)
    if (routing.experts[entry] >= 0) choices.emplace_back(routing.experts[entry], routing.weights[entry]);
  std::sort(choices.begin(), choices.end());

  std::vector<std::byte> bytes(shuffle.row_bytes());
  workload_.fill_row(rank_, token, bytes.data());
  const std::vector<float> x = widened(bytes, shuffle.dtype);
  std::vector<float> total(x.size());
  std::vector<float> of_rank(x.size());
  const auto rank_of = [&](std::int32_t expert) { return map.rank(map.copies(ExpertId(expert)).front()); };
  for (std::size_t choice = 0; choice < choices.size(); ++choice) {
    const auto [expert, weight] = choices[choice];
    const std::vector<float> y = download_expert(expert).apply(x);
    for (std::size_t i = 0; i < y.size(); ++i) of_rank[i] += weight * y[i];
    if (choice + 1 < choices.size() && rank_of(choices[choice + 1].first) == rank_of(expert)) continue;
    const bool is_rounded = shuffle.layout == Layout::token_unique;
    for (std::size_t i = 0; i < y.size(); ++i)
      total[i] += is_rounded ? rounded_to(of_rank[i], shuffle.dtype) : of_rank[i];
    std::fill(of_rank.begin(), of_rank.end(), 0.0f);
  }
  for (float& value : total) value = rounded_to(value, shuffle.dtype);
  return total;
}

double TokenCheck::error_of(std::int64_t token, std::span<const std::byte> result) const {
  const double error = relative_error(widened(result, config_.shuffle.dtype), expected(token));
  const double tolerance = tolerance_of(config_.shuffle.dtype);
  if (!(error <= tolerance))  // NaN included
    fail(ErrorCode::internal,
         "rank {}: token {} is off by {:.1e} of its norm, more than the {:.0e} that rounding explains", rank_, token,
         error, tolerance);
  return error;
}

}  // namespace shunt::cli
