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
  /// Fills `weights` with those of the same choices where the model has any; else returns false.
  virtual bool read_weights(std::int64_t /*rank*/, std::int64_t /*token*/, std::span<float> /*weights*/) const {
    return false;
  }

  /// Whether the model knows what a router gave to every expert, of some tokens; and of this one.
  [[nodiscard]] virtual bool has_scores() const { return false; }
  [[nodiscard]] virtual bool has_scores(std::int64_t /*rank*/, std::int64_t /*token*/) const { return false; }
  /// scores: [experts]. Only for tokens that have scores.
  virtual void read_scores(std::int64_t /*rank*/, std::int64_t /*token*/, std::span<float> /*scores*/) const {}
  /// From scores that the model has, of tokens that need not be drawn; none without scores.
  [[nodiscard]] virtual std::optional<ExpertSimilarity> similarity() const { return std::nullopt; }
};

/// Of config.routing: uniform, zipf:A, node-local, bimodal, hot-ranks:F, clustered:G or trace:FILE. Throws
/// Error(invalid_argument) otherwise, for a trace that can't be read, with file and line or cause, and for one without
/// scores where config.prune needs some.
std::unique_ptr<RoutingModel> make_routing_model(const ShuffleConfig& config);

/// Recorded routings, replayed: a layer of a routing trace (shunt/routing_trace.hpp), or a text file with one token per
/// line, its experts separated by spaces, −1 for a choice that was dropped. Empty lines and lines that start with # are
/// skipped; every line has an end, so that a file that was cut shows. Of every token the first config.topk choices are
/// used. Ranks take consecutive runs of tokens from config.first_token on and start over at the end of the file; but
/// where a routing trace says that its tokens came from just these ranks, each takes its own. Text has no layers and no
/// weights. Throws Error(invalid_argument) with file, and line or cause.
std::unique_ptr<RoutingModel> read_trace(const std::string& path, const ShuffleConfig& config);

}  // namespace shunt::bench
