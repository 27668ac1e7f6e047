// Matrix products one after the other, each timed on its own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "cli/device/gemm.hpp"

namespace shunt::cli {

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

}  // namespace shunt::cli
