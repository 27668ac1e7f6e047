#include "cli/place/trace_tokens.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "core/start_thread.hpp"

namespace shunt::cli {
namespace {

constexpr std::int64_t kTokensAtOnce = 65'536;

/// Appends tokens [first, last) of a layer.
void append(placement::RoutedTokens& tokens, const TraceLayer& layer, const TraceShape& shape, std::int64_t first,
            std::int64_t last) {
  const auto count = static_cast<std::size_t>(last - first);
  std::vector<std::int32_t> some(count * static_cast<std::size_t>(shape.topk));
  layer.read_experts(first, some);
  for (const std::int32_t expert : some)
    tokens.experts.push_back(expert < 0 ? placement::RoutedTokens::kDropped : static_cast<std::uint16_t>(expert));
  const std::size_t end = tokens.sources.size();
  tokens.sources.resize(end + count, -1);
  if (shape.sources) layer.read_sources(first, std::span(tokens.sources).subspan(end, count));
}

/// True if the sources are exactly the ranks 0 to num_ranks − 1.
bool match_ranks(const std::vector<std::int32_t>& sources, std::int32_t num_ranks) {
  std::vector<bool> occurs(static_cast<std::size_t>(num_ranks));
  for (const std::int32_t source : sources) {
    if (source < 0 || source >= num_ranks) return false;
    occurs[static_cast<std::size_t>(source)] = true;
  }
  return std::all_of(occurs.begin(), occurs.end(), [](bool does) { return does; });
}

}  // namespace

TokenSource::TokenSource(const std::vector<std::string>& paths) : paths_(paths) {
  for (const std::string& path : paths) {
    traces_.push_back(RoutingTrace::open(path));
    const TraceShape &one = shape(), &other = traces_.back().shape();
    if (one.layers != other.layers || one.experts != other.experts || one.topk != other.topk)
      fail(ErrorCode::invalid_argument,
           "{}: {} layers of {} experts, top-{}, but {} has {} of {}, top-{}: traces of one model go together", path,
           other.layers, other.experts, other.topk, paths.front(), one.layers, one.experts, one.topk);
  }
}

PlacedLayers TokenSource::read_maps(const std::string& path) const {
  PlacedLayers maps = shunt::read_maps(path);
  if (maps.experts != shape().experts || std::ssize(maps.layers) != shape().layers)
    fail(ErrorCode::invalid_argument, "{}: {} layers of {} experts, but the trace has {} of {}", path,
         maps.layers.size(), maps.experts, shape().layers, shape().experts);
  return maps;
}

std::int64_t TokenSource::num_tokens(std::int32_t layer) const {
  std::int64_t sum = 0;
  for (const RoutingTrace& trace : traces_) sum += trace.layer(layer).num_tokens();
  return sum;
}

placement::RoutedTokens TokenSource::read(std::int32_t layer, std::int64_t first_token, std::int32_t num_ranks,
                                          std::int64_t most) const {
  placement::RoutedTokens tokens{shape().experts, shape().topk, {}, {}};
  bool has_sources = true;
  std::vector<TraceLayer> layers;
  for (const RoutingTrace& trace : traces_) {
    has_sources &= trace.shape().sources;
    layers.push_back(trace.layer(layer));
  }
  const std::int64_t last = first_token + std::min(most, num_tokens(layer));
  const std::int64_t run = traces_.size() == 1 ? kTokensAtOnce : placement::kRunTokens;
  std::int64_t position = 0;  // index of the next token, over all files
  for (std::int64_t begin = 0; position < std::min(last, num_tokens(layer)); begin += run)
    for (std::size_t file = 0; file < layers.size(); ++file) {
      const std::int64_t length = std::clamp<std::int64_t>(layers[file].num_tokens() - begin, 0, run);
      const std::int64_t from = std::clamp<std::int64_t>(first_token - position, 0, length);
      const std::int64_t to = std::clamp<std::int64_t>(last - position, 0, length);
      if (from < to) append(tokens, layers[file], traces_[file].shape(), begin + from, begin + to);
      position += length;
    }
  for (const TraceLayer& of_file : layers) of_file.release();
  if (tokens.num_tokens() == 0)
    fail(ErrorCode::invalid_argument, "{}: layer {} has no token number {}", paths_.back(), layer, first_token);
  if (!has_sources || !match_ranks(tokens.sources, num_ranks)) tokens.deal_sources(num_ranks, first_token);
  return tokens;
}

void for_layers(std::int32_t num_layers, bool shows_progress, const std::function<void(std::int32_t)>& work) {
  std::atomic<std::int32_t> next = 0;
  std::mutex mutex;  // protects `done` and `failed`
  std::int32_t done = 0;
  std::pair<std::int32_t, std::exception_ptr> failed{num_layers, nullptr};
  const auto run = [&] {
    for (std::int32_t layer = next++; layer < num_layers; layer = next++) {
      std::exception_ptr error;
      try {
        work(layer);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      if (error && layer < failed.first) {
        failed = {layer, error};
        next = num_layers;
      }
      ++done;
      if (shows_progress) print_diagnostic("\r\x1b[K{} of {} layers", done, num_layers);
    }
  };
  {
    std::vector<std::jthread> threads;
    const auto cores = static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    for (std::int32_t i = 1; i < std::min(cores, num_layers); ++i)
      threads.push_back(start_thread<std::jthread>("a thread that places layers", run));
    run();
  }
  if (shows_progress) print_diagnostic("\r\x1b[K");
  if (failed.second) std::rethrow_exception(failed.second);
}

}  // namespace shunt::cli
