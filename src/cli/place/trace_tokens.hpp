// Layers of traces, one at a time and several at once.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "placement/routed_tokens.hpp"
#include "shunt/expert_map_file.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt::cli {

/// Traces of the same model, such as those of its ranks, read as one: runs of their tokens take turns, so that tokens
/// that were routed at about the same time lie close together.
class TokenSource {
 public:
  /// Throws Error(invalid_argument) that names the file, also where the files' shapes differ.
  explicit TokenSource(const std::vector<std::string>& paths);

  [[nodiscard]] const TraceShape& shape() const { return traces_.front().shape(); }
  [[nodiscard]] const std::vector<RoutingTrace>& traces() const { return traces_; }

  /// Maps for the traces' layers. Throws Error(invalid_argument) where they are another model's.
  [[nodiscard]] PlacedLayers read_maps(const std::string& path) const;

  [[nodiscard]] std::int64_t num_tokens(std::int32_t layer) const;

  /// A layer's tokens from first_token on, at most so many. Their sources are those recorded if these are just the
  /// ranks, else dealt out. Throws Error(invalid_argument) where there are none.
  [[nodiscard]] placement::RoutedTokens read(std::int32_t layer, std::int64_t first_token, std::int32_t num_ranks,
                                             std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;

 private:
  std::vector<std::string> paths_;
  std::vector<RoutingTrace> traces_;
};

/// Calls work(layer) for all layers, on as many threads as there are cores, and says on stderr how far it is. Rethrows
/// what the lowest layer threw that did.
void for_layers(std::int32_t num_layers, bool shows_progress, const std::function<void(std::int32_t)>& work);

}  // namespace shunt::cli
