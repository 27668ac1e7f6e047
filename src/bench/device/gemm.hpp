// Matrix products that take all multiprocessors they can get.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace shunt::bench {

/// bf16 × bf16 = bf16, summed in fp32, square, of random matrices, by cuBLASLt.
class Gemm {
 public:
  /// Whether there is a cuBLASLt to load.
  [[nodiscard]] static bool is_available();

  /// Matrices of so many rows.
  explicit Gemm(std::int64_t size);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Made for so many multiprocessors, by the fastest of the ways that the library offers for them: the first call
  /// tries all of them on the stream, and waits for it.
  void launch(std::int32_t sms, cudaStream_t stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Products one after the other, each timed on its own.
class GemmSeries {
 public:
  /// So many products for `sms` multiprocessors on a stream.
  GemmSeries(Gemm& gemm, std::int32_t sms, cudaStream_t stream, int count);
  ~GemmSeries();
  GemmSeries(const GemmSeries&) = delete;
  GemmSeries& operator=(const GemmSeries&) = delete;

  /// All of them, after some that are not timed. Their times, in milliseconds.
  std::vector<double> run();

  /// Puts them on their stream, to start when `stream` has come here.
  void launch_after(cudaStream_t stream);
  /// Those that end later than `stream` comes here are not counted.
  void count_until(cudaStream_t stream);
  /// Times of those that count, in milliseconds.
  [[nodiscard]] std::vector<double> wait();

  static double median(std::vector<double> times);

 private:
  void launch();

  Gemm& gemm_;
  std::int32_t sms_;
  cudaStream_t stream_;
  std::vector<cudaEvent_t> marks_;  // before, between and after products
  cudaEvent_t until_ = nullptr;
};

}  // namespace shunt::bench
