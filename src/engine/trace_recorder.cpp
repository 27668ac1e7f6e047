#include "shunt/trace_recorder.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <vector>

#include "core/narrow_routing.hpp"

namespace shunt {

struct TraceRecorder::Impl {
  Impl(const std::string& path, const TraceRecorderOptions& options)
      : shape{.layers = options.layers,
              .experts = options.experts,
              .topk = options.topk,
              .weights = options.weights,
              .scores = false,
              .sources = true},
        max_tokens(options.max_tokens_per_layer),
        writer(std::in_place, path, shape),
        recorded(static_cast<std::size_t>(shape.layers)) {
    if (max_tokens < 0)
      fail(ErrorCode::invalid_argument, "{}: max_tokens_per_layer is {}, expected 0 or more", path, max_tokens);
  }

  /// Keeps the error that ended recording and closes the file.
  void give_up(const Error& error) {
    failure = error;
    writer.reset();
  }

  TraceShape shape;
  std::int64_t max_tokens;

  mutable std::mutex mutex;
  std::optional<TraceWriter> writer;   // empty after finish() or a failure
  std::vector<std::int64_t> recorded;  // tokens, by layer
  std::int64_t skipped = 0;
  std::optional<Error> failure;
};

TraceRecorder::TraceRecorder(const std::string& path, const TraceRecorderOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {}
TraceRecorder::~TraceRecorder() = default;

const TraceShape& TraceRecorder::shape() const { return impl_->shape; }

void TraceRecorder::record(std::int32_t layer, const Routing& given, RankId source) {
  const NarrowRouting narrow(given, {"trace"});
  const Routing& routing = narrow.get();
  Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  const auto tokens = static_cast<std::int64_t>(routing.num_tokens());
  const bool has_layer = layer >= 0 && layer < impl.shape.layers;  // else append() throws
  const std::int64_t room = has_layer ? impl.max_tokens - impl.recorded[static_cast<std::size_t>(layer)] : tokens;
  const std::int64_t kept = impl.writer ? std::min(tokens, room) : 0;
  impl.skipped += tokens - kept;
  if (kept == 0) return;
  const std::size_t entries = static_cast<std::size_t>(kept) * static_cast<std::size_t>(routing.topk);
  const auto weights = routing.weights.first(std::min(entries, routing.weights.size()));
  try {
    impl.writer->append(layer, {routing.experts.narrow().first(entries), weights, routing.topk}, {}, source);
    impl.recorded[static_cast<std::size_t>(layer)] += kept;
    return;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_argument) throw;
    impl.give_up(error);
  } catch (const std::bad_alloc&) {
    impl.give_up(Error(ErrorCode::system, "no memory is left to record a routing trace in"));
  }
  impl.skipped += kept;
}

std::int64_t TraceRecorder::num_recorded() const {
  const std::lock_guard lock(impl_->mutex);
  return std::reduce(impl_->recorded.begin(), impl_->recorded.end());
}

std::int64_t TraceRecorder::num_skipped() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->skipped;
}

void TraceRecorder::check() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->failure) throw Error(*impl_->failure);
}

void TraceRecorder::finish() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->failure) throw Error(*impl_->failure);
  if (!impl_->writer) return;
  try {
    impl_->writer->finish();
  } catch (const Error& error) {
    impl_->give_up(error);
    throw;
  }
  impl_->writer.reset();
}

}  // namespace shunt
