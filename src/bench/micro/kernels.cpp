// Kernel rates. Compare them within one run only: `bench_kernels --benchmark_enable_random_interleaving=true
// --benchmark_repetitions=5 --benchmark_report_aggregates_only=true`.
//
// read_rows is the upper bound of reduce_row, memcpy_rows the reference for copy_row. copy_then_read at sizes around
// the last-level cache gives the threshold of choose_store(): the output of an operation is read by the next
// computation.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/copy.hpp"
#include "kernels/dot.hpp"
#include "kernels/fp8.hpp"
#include "kernels/reduce.hpp"
#include "kernels/scale.hpp"

namespace shunt {
namespace {

constexpr std::size_t kHidden = 7168;
constexpr std::size_t kRowBytes = kHidden * 2;
constexpr std::size_t kTopK = 8;

/// bf16 rows of ones, in random order of addresses.
class Rows {
 public:
  explicit Rows(std::size_t total_bytes)
      : num_(total_bytes / kRowBytes), elements_(num_ * kHidden, 0x3f80), order_(num_) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937(1));
  }

  [[nodiscard]] std::size_t num() const { return num_; }
  [[nodiscard]] std::size_t bytes() const { return num_ * kRowBytes; }
  std::byte* shuffled(std::size_t i) { return row(order_[i]); }
  std::byte* row(std::size_t i) { return reinterpret_cast<std::byte*>(elements_.data() + i * kHidden); }

 private:
  std::size_t num_;
  std::vector<std::uint16_t> elements_;
  std::vector<std::size_t> order_;
};

std::uint64_t sum_words(const std::byte* row) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(row);
  return std::accumulate(words, words + kRowBytes / sizeof(std::uint64_t), std::uint64_t{0});
}

void set_rate(benchmark::State& state, std::size_t bytes_per_iteration) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes_per_iteration) * state.iterations());
}

std::size_t mebibytes(const benchmark::State& state) { return static_cast<std::size_t>(state.range(0)) << 20; }

void memcpy_rows(benchmark::State& state) {
  Rows source(mebibytes(state));
  Rows target(mebibytes(state));
  for (auto _ : state)
    for (std::size_t i = 0; i < source.num(); ++i) std::memcpy(target.shuffled(i), source.row(i), kRowBytes);
  set_rate(state, 2 * source.bytes());
}

void copy_all(Rows& source, Rows& target, Store store) {
  for (std::size_t i = 0; i < source.num(); ++i) {
    std::byte* const to = target.shuffled(i);
    copy_row(source.row(i), kRowBytes, {&to, 1}, store);
  }
  flush_streaming();
}

void copy_rows(benchmark::State& state, Store store) {
  Rows source(mebibytes(state));
  Rows target(mebibytes(state));
  for (auto _ : state) copy_all(source, target, store);
  set_rate(state, 2 * source.bytes());
}

void copy_then_read(benchmark::State& state, Store store) {
  Rows source(mebibytes(state));
  Rows target(mebibytes(state));
  for (auto _ : state) {
    copy_all(source, target, store);
    for (std::size_t i = 0; i < target.num(); ++i) benchmark::DoNotOptimize(sum_words(target.row(i)));
  }
  set_rate(state, 3 * source.bytes());
}

using Words = const std::uint64_t*;

// Reads one line of every row in turn, like reduce_row.
std::uint64_t sum_lines(const std::array<Words, kTopK>& rows) {
  constexpr std::size_t kLineWords = 8;
  std::array<std::uint64_t, kLineWords> sums{};
  for (std::size_t line = 0; line < kRowBytes / sizeof(std::uint64_t); line += kLineWords)
    for (const Words row : rows)
      for (std::size_t i = 0; i < kLineWords; ++i) sums[i] += row[line + i];
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

void read_rows(benchmark::State& state) {
  Rows rows(mebibytes(state));
  const std::size_t num_tokens = rows.num() / kTopK;
  for (auto _ : state) {
    for (std::size_t token = 0; token < num_tokens; ++token) {
      std::array<Words, kTopK> words;
      for (std::size_t k = 0; k < kTopK; ++k) words[k] = reinterpret_cast<Words>(rows.shuffled(token * kTopK + k));
      benchmark::DoNotOptimize(sum_lines(words));
    }
  }
  set_rate(state, num_tokens * kTopK * kRowBytes);
}

void reduce_rows(benchmark::State& state, Store store) {
  Rows rows(mebibytes(state));
  const std::size_t num_tokens = rows.num() / kTopK;
  std::vector<std::uint16_t> result(num_tokens * kHidden);
  std::vector<Term> terms(kTopK);
  const auto reduce_all = [&] {
    for (std::size_t token = 0; token < num_tokens; ++token) {
      for (std::size_t k = 0; k < kTopK; ++k)
        terms[k] = {rows.shuffled(token * kTopK + k), 0.125f, k % 2 == 0 ? Closes::nothing : Closes::rank};
      terms.back().closes = Closes::node;
      reduce_row(terms, kHidden, {bf16, bf16, bf16}, reinterpret_cast<std::byte*>(result.data() + token * kHidden),
                 store);
    }
    flush_streaming();
  };
  reduce_all();
  if (std::any_of(result.begin(), result.end(), [](std::uint16_t bits) { return bits != 0x3f80; })) {
    state.SkipWithError("the sum of eight eighths is not one");
    return;
  }
  for (auto _ : state) reduce_all();
  set_rate(state, num_tokens * (kTopK + 1) * kRowBytes);
}

// The remaining benchmarks use one row in the cache, to compare arithmetic with memory rates.

void scale_in_cache(benchmark::State& state, DType dtype) {
  Rows source(kRowBytes);
  Rows target(kRowBytes);
  for (auto _ : state) scale_row(source.row(0), dtype, 0.5f, kHidden, target.row(0), dtype, Store::cached);
  set_rate(state, 2 * kRowBytes);
}

void dot_in_cache(benchmark::State& state, DType dtype) {
  Rows rows(2 * kRowBytes);
  for (auto _ : state) benchmark::DoNotOptimize(dot(rows.row(0), dtype, rows.row(1), dtype, kHidden));
  set_rate(state, 2 * kRowBytes);
}

void quantise_in_cache(benchmark::State& state, DType dtype) {
  Rows source(kRowBytes);
  std::vector<std::uint8_t> elements(kHidden);
  std::vector<float> scales(scales_per_row(kHidden));
  for (auto _ : state) quantise_row(source.row(0), dtype, kHidden, elements.data(), scales.data());
  set_rate(state, kRowBytes + kHidden);
}

void dequantise_in_cache(benchmark::State& state, DType dtype) {
  const std::vector<std::uint8_t> elements(kHidden, 0x38);
  const std::vector<float> scales(scales_per_row(kHidden), 1.0f);
  Rows target(kRowBytes);
  for (auto _ : state) dequantise_row(elements.data(), scales.data(), kHidden, target.row(0), dtype);
  set_rate(state, kRowBytes + kHidden);
}

constexpr std::int64_t kBeyondCacheMiB = 512;

BENCHMARK(memcpy_rows)->Arg(kBeyondCacheMiB);
BENCHMARK_CAPTURE(copy_rows, cached, Store::cached)->Arg(kBeyondCacheMiB);
BENCHMARK_CAPTURE(copy_rows, streaming, Store::streaming)->Arg(kBeyondCacheMiB);
BENCHMARK(read_rows)->Arg(kBeyondCacheMiB);
BENCHMARK_CAPTURE(reduce_rows, cached, Store::cached)->Arg(kBeyondCacheMiB);
BENCHMARK_CAPTURE(reduce_rows, streaming, Store::streaming)->Arg(kBeyondCacheMiB);
BENCHMARK_CAPTURE(copy_then_read, cached, Store::cached)->DenseRange(4, 20, 2)->RangeMultiplier(2)->Range(32, 128);
BENCHMARK_CAPTURE(copy_then_read, streaming, Store::streaming)
    ->DenseRange(4, 20, 2)
    ->RangeMultiplier(2)
    ->Range(32, 128);
BENCHMARK_CAPTURE(scale_in_cache, bf16, bf16);
BENCHMARK_CAPTURE(scale_in_cache, f16, f16);
BENCHMARK_CAPTURE(dot_in_cache, bf16, bf16);
BENCHMARK_CAPTURE(dot_in_cache, f16, f16);
BENCHMARK_CAPTURE(quantise_in_cache, bf16, bf16);
BENCHMARK_CAPTURE(quantise_in_cache, f16, f16);
BENCHMARK_CAPTURE(dequantise_in_cache, bf16, bf16);
BENCHMARK_CAPTURE(dequantise_in_cache, f16, f16);

}  // namespace
}  // namespace shunt
