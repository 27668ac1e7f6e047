// Time to open a layer of a routing trace (checksums, checks of every value) and to decode it: one million tokens,
// top-8 of 256 experts, in the page cache. Rates count the file's bytes.
#include "shunt/routing_trace.hpp"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace shunt {
namespace {

constexpr std::int64_t kTokens = 1'000'000;
constexpr TraceShape kExperts = {.layers = 1, .experts = 256, .topk = 8};
constexpr TraceShape kWeighted = {.layers = 1, .experts = 256, .topk = 8, .weights = true};

/// A file of random tokens, removed after the benchmark.
class RandomTrace {
 public:
  explicit RandomTrace(const TraceShape& shape) : path_("bench-" + std::to_string(getpid()) + ".trace") {
    std::mt19937 random(1);
    std::vector<std::int32_t> experts;
    std::vector<float> weights;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const auto first = static_cast<std::int32_t>(random() % 256);
      for (std::int32_t k = 0; k < shape.topk; ++k) {
        experts.push_back((first + k * 37) % 256);
        weights.push_back(static_cast<float>(random() % 4096) * 0x1p-24f);
      }
    }
    TraceWriter writer(path_, shape);
    writer.append(0, {experts, weights, shape.topk});
    writer.finish();
  }
  ~RandomTrace() { std::remove(path_.c_str()); }
  RandomTrace(const RandomTrace&) = delete;
  RandomTrace& operator=(const RandomTrace&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void verify_and_decode(benchmark::State& state, const TraceShape& shape) {
  constexpr std::int64_t kBlock = 4096;
  const RandomTrace file(shape);
  std::vector<std::int32_t> experts(kBlock * 8);
  std::vector<float> weights(kBlock * 8);
  for (auto _ : state) {
    const TraceLayer layer = RoutingTrace::open(file.path()).layer(0);
    for (std::int64_t first = 0; first + kBlock <= kTokens; first += kBlock) {
      layer.read_experts(first, experts);
      if (shape.weights) layer.read_weights(first, weights);
      benchmark::DoNotOptimize(experts.data());
      benchmark::DoNotOptimize(weights.data());
    }
  }
  state.SetBytesProcessed(state.iterations() * kTokens * 8 * (shape.weights ? 3 : 1));
}

BENCHMARK_CAPTURE(verify_and_decode, experts, kExperts);
BENCHMARK_CAPTURE(verify_and_decode, experts_and_weights, kWeighted);

}  // namespace
}  // namespace shunt
