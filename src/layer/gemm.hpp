// Matrix products by a library; each backend folder has one implementation, and a build uses one backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "shunt/dtype.hpp"

namespace shunt {

/// y = x · wᵀ with x [rows, inputs], w [outputs, inputs] and y [rows, outputs], all of one dtype and contiguous.
/// Computes on the calling thread only. Different threads may use different objects at the same time, but not the same
/// one.
class Gemm {
 public:
  /// Name and version of the library; empty if this build has none.
  static std::string library();
  /// True if this machine computes in the dtype itself; always true for f32 if there is a library.
  static bool has(DType dtype);

  /// Throws Error(unsupported) if this build has no library.
  Gemm(DType dtype, std::int64_t inputs, std::int64_t outputs);
  ~Gemm();
  Gemm(Gemm&&) noexcept;

  void run(const std::byte* x, const std::byte* w, std::byte* y, std::int64_t rows);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// c = a · b, or c += a · b, in f32; what each backend implements for multiply(). c is row-major; a and b may be
/// transposed in memory, and their leading dimensions are the distances of rows in memory.
struct Sgemm {
  std::int64_t rows, cols, inner;
  const float* a;
  std::int64_t leading_a;
  bool transposed_a;
  const float* b;
  std::int64_t leading_b;
  bool transposed_b;
  float* c;
  std::int64_t leading_c;
  bool adds;
};
void run(const Sgemm& product);

}  // namespace shunt
