// A matrix product that takes all multiprocessors it can get.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace shunt::cli {

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

}  // namespace shunt::cli
