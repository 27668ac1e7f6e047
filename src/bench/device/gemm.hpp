// Matrix products beside a shuffle.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace shunt::bench {

/// Products of random square bf16 matrices, summed in fp32, by cuBLASLt.
class Gemm {
 public:
  /// True if cuBLASLt can be loaded.
  [[nodiscard]] static bool is_available();

  /// size: rows and columns of the matrices.
  explicit Gemm(std::int64_t size);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Launches a product for `sms` multiprocessors with the library's fastest algorithm for this number. The first call
  /// tries all algorithms on the stream and waits for it.
  void launch(std::int32_t sms, cudaStream_t stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A series of products, each timed separately.
class GemmSeries {
 public:
  /// `count` products for `sms` multiprocessors on a stream.
  GemmSeries(Gemm& gemm, std::int32_t sms, cudaStream_t stream, int count);
  ~GemmSeries();
  GemmSeries(const GemmSeries&) = delete;
  GemmSeries& operator=(const GemmSeries&) = delete;

  /// Runs all products after some untimed ones; returns their times in milliseconds.
  std::vector<double> run();

  /// Launches the products on their stream, to start after the current work of `stream`.
  void launch_after(cudaStream_t stream);
  /// Excludes products that end after the current work of `stream`.
  void count_until(cudaStream_t stream);
  /// Waits for the products; returns times in milliseconds without excluded ones.
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
