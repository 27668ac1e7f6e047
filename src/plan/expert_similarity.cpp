#include <cmath>

#include "core/fail.hpp"
#include "shunt/pruning.hpp"

namespace shunt {
namespace {

/// [experts, experts], from the diagonal to the right. The sum of a pair adds token by token; the innermost loop runs
/// over pairs, so that it vectorises without changing that order.
std::vector<double> dot_products(std::span<const float> scores, std::size_t num_experts) {
  std::vector<double> dots(num_experts * num_experts);
  std::vector<double> row(num_experts);
  for (std::size_t begin = 0; begin < scores.size(); begin += num_experts) {
    for (std::size_t expert = 0; expert < num_experts; ++expert) {
      const float score = scores[begin + expert];
      if (!std::isfinite(score))
        fail(ErrorCode::invalid_argument,
             "expert similarity: token {}: the score of expert {} is {}, expected a finite one", begin / num_experts,
             expert, score);
      row[expert] = double{score};
    }
    for (std::size_t a = 0; a < num_experts; ++a) {
      const double score = row[a];
      double* const sums = dots.data() + a * num_experts;
      for (std::size_t b = a; b < num_experts; ++b) sums[b] += score * row[b];
    }
  }
  return dots;
}

}  // namespace

ExpertSimilarity ExpertSimilarity::from_scores(std::span<const float> scores, std::int64_t num_tokens,
                                               std::int32_t num_experts) {
  if (num_experts < 1)
    fail(ErrorCode::invalid_argument, "expert similarity: num_experts is {}, expected at least 1", num_experts);
  const auto experts = static_cast<std::size_t>(num_experts);
  if (num_tokens < 0 || scores.size() != static_cast<std::size_t>(num_tokens) * experts)
    fail(ErrorCode::invalid_argument, "expert similarity: {} scores, expected {} tokens x {} experts", scores.size(),
         num_tokens, num_experts);
  const std::vector<double> dots = dot_products(scores, experts);
  ExpertSimilarity similarity;
  similarity.num_experts_ = num_experts;
  similarity.values_.resize(dots.size());
  for (std::size_t a = 0; a < experts; ++a)
    for (std::size_t b = a; b < experts; ++b) {
      const double norms = std::sqrt(dots[a * experts + a]) * std::sqrt(dots[b * experts + b]);
      const auto cosine = static_cast<float>(norms > 0 ? dots[a * experts + b] / norms : 0);
      similarity.values_[a * experts + b] = cosine;
      similarity.values_[b * experts + a] = cosine;
    }
  return similarity;
}

}  // namespace shunt
