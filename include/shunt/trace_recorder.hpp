// Records the routings of plans as a routing trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shunt/ids.hpp"
#include "shunt/routing.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt {

/// What a recorder keeps of a model's routings. Routings have no scores, so the trace has none.
struct TraceRecorderOptions {
  std::int32_t layers = 0;
  std::int32_t experts = 0;
  std::int32_t topk = 0;
  bool weights = true;
  /// Tokens of a layer beyond these are only counted.
  std::int64_t max_tokens_per_layer = std::int64_t{1} << 20;
};

/// Engines whose options refer to the recorder record the routing of every plan they make, as it was passed, before any
/// limit on capacity; a plan that failed records nothing. The source of the tokens is the rank in the engine's world.
/// Recording changes no result.
///
/// All members may be called from any thread. Ranks that are processes each make a recorder in their own process, with
/// its own file. Ranks that are threads may share one, whose file then holds their tokens in the order in which plans
/// were completed; with one recorder each, files are the same on every run. Memory is bounded as TraceWriter's; a full
/// buffer is written by the thread that plans.
class TraceRecorder {
 public:
  /// Throws as TraceWriter does.
  TraceRecorder(const std::string& path, const TraceRecorderOptions& options);
  /// Removes the file unless finish() succeeded.
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  [[nodiscard]] const TraceShape& shape() const;

  /// Called by engines. Throws Error(invalid_argument) where TraceWriter::append() does. If the file can't be written,
  /// recording ends without an exception here, so that training continues; check() and finish() throw the Error.
  void record(std::int32_t layer, const Routing& routing, RankId source);

  /// Tokens of all layers that were recorded, and those that were skipped: beyond a layer's limit, after a failure, or
  /// after finish().
  [[nodiscard]] std::int64_t num_recorded() const;
  [[nodiscard]] std::int64_t num_skipped() const;

  /// Throws the Error(system) that ended recording, if any.
  void check() const;

  /// Completes the file; later tokens are skipped. Throws as check() does, and if the file can't be completed. After a
  /// success, further calls do nothing.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where an engine records.
struct TraceTarget {
  std::shared_ptr<TraceRecorder> recorder;  ///< null: nothing is recorded
  std::int32_t layer = 0;                   ///< the engine's layer in the trace
};

}  // namespace shunt
