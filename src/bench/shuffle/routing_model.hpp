// Synthetic and recorded routings.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>

#include "bench/shuffle/config.hpp"
#include "shunt/pruning.hpp"

namespace shunt::bench {

/// Draws a token's experts; deterministic for a given random state.
class RoutingModel {
 public:
  virtual ~RoutingModel() = default;
  /// Fills `experts` with distinct experts for the given token of the given rank; −1 where a choice is dropped.
  virtual void draw(std::mt19937_64& random, std::int64_t rank, std::int64_t token,
                    std::span<std::int32_t> experts) const = 0;
  /// Fills `weights` with the weights of the same choices; returns false if the model has none.
  virtual bool read_weights(std::int64_t /*rank*/, std::int64_t /*token*/, std::span<float> /*weights*/) const {
    return false;
  }

  /// True if the model has router scores of all experts, for some tokens or for this one.
  [[nodiscard]] virtual bool has_scores() const { return false; }
  [[nodiscard]] virtual bool has_scores(std::int64_t /*rank*/, std::int64_t /*token*/) const { return false; }
  /// Fills scores ([experts]). Only for tokens that have scores.
  virtual void read_scores(std::int64_t /*rank*/, std::int64_t /*token*/, std::span<float> /*scores*/) const {}
  /// Similarity computed from the model's scores, also of tokens that are not drawn; nullopt without scores.
  [[nodiscard]] virtual std::optional<ExpertSimilarity> similarity() const { return std::nullopt; }
};

/// Makes the model named by config.routing: uniform, zipf:A, node-local, bimodal, hot-ranks:F, clustered:G or
/// trace:FILE. Throws Error(invalid_argument) for other names, for a trace that can't be read (with file, and line or
/// cause), and for a trace without scores if config.prune needs them.
std::unique_ptr<RoutingModel> make_routing_model(const ShuffleConfig& config);

/// Replays recorded routings: a layer of a routing trace (shunt/routing_trace.hpp), or a text file with one token per
/// line, its experts separated by spaces, −1 for a dropped choice. In text files, empty lines and lines that start with
/// # are skipped, and the last line must end with a line break, so that truncated files are detected; they have no
/// layers and no weights. The first config.topk choices of each token are used. Ranks use consecutive runs of tokens,
/// beginning with config.first_token, and start over at the end of the file. If the sources recorded in a routing trace
/// are exactly these ranks, each rank uses its own tokens. Throws Error(invalid_argument) with file, and line or cause.
std::unique_ptr<RoutingModel> read_trace(const std::string& path, const ShuffleConfig& config);

}  // namespace shunt::bench
