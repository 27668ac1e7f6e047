// Reading the layers of traces, and processing several layers in parallel.
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

/// Traces of the same model, such as one per rank, read as one. Runs of tokens alternate between the files, so that
/// tokens that were routed at about the same time are close together.
class TokenSource {
 public:
  /// Throws Error(invalid_argument) that names the file, also if the files' shapes differ.
  explicit TokenSource(const std::vector<std::string>& paths);

  [[nodiscard]] const TraceShape& shape() const { return traces_.front().shape(); }
  [[nodiscard]] const std::vector<RoutingTrace>& traces() const { return traces_; }

  /// Reads maps for the traces' layers. Throws Error(invalid_argument) if the shapes differ.
  [[nodiscard]] PlacedLayers read_maps(const std::string& path) const;

  [[nodiscard]] std::int64_t num_tokens(std::int32_t layer) const;

  /// At most `most` tokens of a layer, beginning with first_token. Their sources are the recorded ones if these are
  /// exactly the ranks; otherwise tokens are distributed over the ranks. Throws Error(invalid_argument) if there are
  /// none.
  [[nodiscard]] placement::RoutedTokens read(std::int32_t layer, std::int64_t first_token, std::int32_t num_ranks,
                                             std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;

 private:
  std::vector<std::string> paths_;
  std::vector<RoutingTrace> traces_;
};

/// Calls work(layer) for all layers, on one thread per core, and prints progress to stderr. If calls throw, rethrows
/// the exception of the lowest such layer.
void for_layers(std::int32_t num_layers, bool shows_progress, const std::function<void(std::int32_t)>& work);

}  // namespace shunt::cli
