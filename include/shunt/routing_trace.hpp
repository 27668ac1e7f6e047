// Routing traces: what routers decided for many tokens of many layers, in a file. docs/concepts/routing-traces.md
// describes the format byte by byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shunt/ids.hpp"
#include "shunt/routing.hpp"

namespace shunt {

class TraceFile;

/// What a trace holds of every token. Layers may have different numbers of tokens.
struct TraceShape {
  std::int32_t layers = 0;   ///< 1 to kMaxLayers
  std::int32_t experts = 0;  ///< 1 to kMaxExperts
  std::int32_t topk = 0;     ///< 1 to Routing::kMaxTopK
  bool weights = false;
  bool scores = false;   ///< of some layers, and of some of their first tokens: TraceLayer::num_scored_tokens()
  bool sources = false;  ///< the rank that each token came from

  static constexpr std::int32_t kMaxLayers = 65'536;
  static constexpr std::int32_t kMaxExperts = 65'535;

  bool operator==(const TraceShape&) const = default;
};

/// One layer of a trace, already verified. Light to copy; keeps the file mapped. All members may be called from any
/// thread. A read names its tokens by the first one and by the length of `out`; it throws Error(invalid_argument) where
/// that is no whole number of tokens, where the layer has fewer, or where the trace has no such values.
class TraceLayer {
 public:
  [[nodiscard]] std::int64_t num_tokens() const;
  /// Scores are there for the layer's tokens 0 to num_scored_tokens() − 1.
  [[nodiscard]] std::int64_t num_scored_tokens() const;
  [[nodiscard]] bool has_scores() const { return num_scored_tokens() > 0; }

  /// out: [count, topk]; −1 = dropped.
  void read_experts(std::int64_t first, std::span<std::int32_t> out) const;
  /// out: [count, topk]; 0 where dropped.
  void read_weights(std::int64_t first, std::span<float> out) const;
  /// out: [count, experts].
  void read_scores(std::int64_t first, std::span<float> out) const;
  /// out: [count] ranks.
  void read_sources(std::int64_t first, std::span<std::int32_t> out) const;

  /// The pages of this layer may leave this process's memory until they are read again.
  void release() const;

 private:
  friend class RoutingTrace;
  TraceLayer(std::shared_ptr<const TraceFile> file, std::int32_t layer) : file_(std::move(file)), layer_(layer) {}

  std::shared_ptr<const TraceFile> file_;
  std::int32_t layer_;
};

/// A trace file, mapped into memory. Light to copy; all members may be called from any thread. The file must not be
/// changed while it is open; a TraceWriter replaces a file and leaves the open one as it is.
class RoutingTrace {
 public:
  /// Checks magic, version, sizes and the checksums of header and index, not yet those of layers. Throws
  /// Error(invalid_argument) that names file and cause: foreign, truncated, half-written, corrupt, or of a newer
  /// version.
  static RoutingTrace open(const std::string& path);

  /// Whether the file begins as traces of this format do, whatever follows. False where it can't be read.
  static bool recognise(const std::string& path);

  [[nodiscard]] const TraceShape& shape() const;

  /// The first call for a layer reads all of it: checksums, experts in range and none twice in a token, finite weights
  /// and scores. Throws Error(invalid_argument) that names file, layer and cause. Layers may be asked for by several
  /// threads at once.
  [[nodiscard]] TraceLayer layer(std::int32_t layer) const;

 private:
  explicit RoutingTrace(std::shared_ptr<const TraceFile> file) : file_(std::move(file)) {}

  std::shared_ptr<const TraceFile> file_;
};

/// Writes a trace. Layers may be appended to in any order; memory is bounded by about 256 KiB per layer. The file is
/// written beside `path` and appears there, replacing what was there, when finish() succeeds; else it is removed. Not
/// to be called by several threads at once.
class TraceWriter {
 public:
  /// Throws Error(invalid_argument) for a shape that is out of range, Error(system) where no file can be written.
  TraceWriter(const std::string& path, const TraceShape& shape);
  ~TraceWriter();
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;

  /// Adds tokens at the end of a layer. What the shape does not have is not kept. Weights and scores are rounded to
  /// f16, to nearest even; values beyond ±65504 become ±65504. scores: [n, experts] of the first n of these tokens;
  /// once a layer has tokens without scores, the following ones can't have any. `source`: the rank these tokens came
  /// from, required where the shape has sources.
  ///
  /// Throws Error(invalid_argument) that names layer, token and cause, after which the writer is as before, or
  /// Error(system), after which it can only be destroyed.
  void append(std::int32_t layer, const Routing& routing, std::span<const float> scores = {}, RankId source = {});

  /// Completes the file under its name. Throws Error(system). Nothing can be appended afterwards.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shunt
