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

}  // namespace shunt
