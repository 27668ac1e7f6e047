// Records what is planned for as a routing trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shunt/ids.hpp"
#include "shunt/routing.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt {

/// What a recorder keeps of a model's routings. The routing at plan() has no scores, so the trace has none.
struct TraceRecorderOptions {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t topk = 0;
  bool weights = true;
  /// Of the tokens of a layer beyond these, only their number is kept.
  std::int64_t max_tokens_per_layer = std::int64_t{1} << 20;
};

/// Engines whose options name it record every routing that they made a plan of, as it was given, before any limit on
/// capacity; a plan that failed leaves nothing. The rank of the engine's world is the tokens' source. Recording changes
/// no result.
///
/// All members may be called from any thread. Ranks that are processes each make a recorder in their own process, with
/// a file of its own. Ranks that are threads may share one, whose file then holds their tokens in the order in which
/// plans were completed; with one each, files are the same on every run. Memory is bounded as TraceWriter's; a full
/// buffer is written by the thread that plans.
class TraceRecorder {
 public:
  /// Throws as TraceWriter does.
  TraceRecorder(const std::string& path, const TraceRecorderOptions& options);
  /// Unless finish() succeeded, no file remains.
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  [[nodiscard]] const TraceShape& shape() const;

  /// What engines call. Throws Error(invalid_argument) for what TraceWriter::append() refuses. Where the file can't be
  /// written, recording ends and training goes on: finish() and check() tell.
  void record(std::int32_t layer, const Routing& routing, RankId source);

  /// Tokens of all layers that are recorded, and those that came after a layer's limit, after a failure, or after
  /// finish().
  [[nodiscard]] std::int64_t num_recorded() const;
  [[nodiscard]] std::int64_t num_skipped() const;

  /// Throws the Error(system) that ended recording, if one did.
  void check() const;

  /// Completes the file; what is recorded later is skipped. Throws as check() does, and where the file can't be
  /// completed. Once it has succeeded, further calls do nothing.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What an engine records to.
struct TraceTarget {
  std::shared_ptr<TraceRecorder> recorder;  ///< none: nothing is recorded
  std::int32_t layer = 0;                   ///< the engine's layer in the trace
};

}  // namespace shunt
