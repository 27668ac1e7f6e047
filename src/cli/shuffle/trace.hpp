// Recorded routings: a text file with one token per line, its experts separated by spaces, −1 for a choice that was
// dropped. Empty lines and lines that start with # are skipped; every line has an end, so that a file that was cut
// shows.
#pragma once

#include <string>
#include <vector>

#include "cli/shuffle/routing_model.hpp"

namespace shunt::cli {

class Trace final : public RoutingModel {
 public:
  /// Every line must have at least topk choices, no expert twice; the first topk are used. Throws
  /// Error(invalid_argument) with file and line.
  static Trace read(const std::string& path, std::int32_t num_experts, std::int32_t topk, std::int64_t tokens_per_rank);

  /// Ranks take consecutive runs of lines and start over at the end of the file.
  void draw(std::mt19937_64& random, std::int64_t rank, std::int64_t token,
            std::span<std::int32_t> experts) const override;

 private:
  std::int64_t tokens_per_rank_ = 0;
  std::size_t topk_ = 0;
  std::vector<std::int32_t> experts_;  // [lines, topk]
};

}  // namespace shunt::cli
