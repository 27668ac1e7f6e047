// Routing traces: files of routers' decisions for many tokens of many layers. docs/concepts/routing-traces.md describes
// the format byte by byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shunt/ids.hpp"
#include "shunt/routing.hpp"

namespace shunt {

class TraceFile;

/// What a trace holds for every token. Layers may have different numbers of tokens.
struct TraceShape {
  std::int32_t layers = 0;   ///< 1 to kMaxLayers
  std::int32_t experts = 0;  ///< 1 to kMaxExperts
  std::int32_t topk = 0;     ///< 1 to Routing::kMaxTopK
  bool weights = false;
  bool scores = false;   ///< for some layers, and for their first TraceLayer::num_scored_tokens() tokens
  bool sources = false;  ///< the rank that each token came from

  static constexpr std::int32_t kMaxLayers = 65'536;
  static constexpr std::int32_t kMaxExperts = 65'535;

  bool operator==(const TraceShape&) const = default;
};

/// One layer of a trace, already verified. Cheap to copy; keeps the file mapped. All members may be called from any
/// thread. A read covers the tokens from `first` on that fill `out`. It throws Error(invalid_argument) if `out` does
/// not hold a whole number of tokens, the layer has fewer tokens, or the trace has no such values.
class TraceLayer {
 public:
  [[nodiscard]] std::int64_t num_tokens() const;
  /// Tokens 0 to num_scored_tokens() − 1 of the layer have scores.
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

  /// Lets the operating system drop this layer's pages from memory until they are read again.
  void release() const;

 private:
  friend class RoutingTrace;
  TraceLayer(std::shared_ptr<const TraceFile> file, std::int32_t layer) : file_(std::move(file)), layer_(layer) {}

  std::shared_ptr<const TraceFile> file_;
  std::int32_t layer_;
};

/// A trace file, mapped into memory. Cheap to copy; all members may be called from any thread. The file must not be
/// modified while it is open; a TraceWriter replaces a file and leaves the open one intact.
class RoutingTrace {
 public:
  /// Checks magic, version, sizes and the checksums of header and index, but not those of layers. Throws
  /// Error(invalid_argument) that names the file and the cause: not a trace, truncated, half-written, corrupt, or of a
  /// newer version.
  static RoutingTrace open(const std::string& path);

  /// True if the file starts as traces of this format do. Does not check the rest. False if it can't be read.
  static bool recognise(const std::string& path);

  [[nodiscard]] const TraceShape& shape() const;

  /// The first call for a layer reads and checks all of it: checksums, experts in range and none twice in a token,
  /// finite weights and scores. Throws Error(invalid_argument) that names file, layer and cause. Several threads may
  /// call it at once.
  [[nodiscard]] TraceLayer layer(std::int32_t layer) const;

 private:
  explicit RoutingTrace(std::shared_ptr<const TraceFile> file) : file_(std::move(file)) {}

  std::shared_ptr<const TraceFile> file_;
};

/// Writes a trace. Layers may be appended to in any order; memory is bounded by about 256 KiB per layer. The file is
/// written beside `path`; finish() moves it to `path` and replaces a previous file. Without a successful finish() it is
/// removed. Not thread-safe.
class TraceWriter {
 public:
  /// Throws Error(invalid_argument) for a shape that is out of range, Error(system) if no file can be written.
  TraceWriter(const std::string& path, const TraceShape& shape);
  ~TraceWriter();
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;

  /// Adds tokens at the end of a layer. Values that the shape does not include are ignored. Weights and scores are
  /// rounded to f16, to nearest even; values beyond ±65504 become ±65504. scores: [n, experts] of the first n of these
  /// tokens; once a layer has tokens without scores, later ones can't have any. source: the rank of these tokens,
  /// required if the shape has sources.
  ///
  /// Throws Error(invalid_argument) that names layer, token and cause, which leaves the writer unchanged, or
  /// Error(system), after which the writer can only be destroyed.
  void append(std::int32_t layer, const Routing& routing, std::span<const float> scores = {}, RankId source = {});

  /// Completes the file at its path. Throws Error(system). Nothing can be appended afterwards.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shunt
