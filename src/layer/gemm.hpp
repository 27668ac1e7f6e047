// Matrix products by a library; each backend folder has one implementation, and a build has one backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "shunt/dtype.hpp"

namespace shunt {

/// y = x · wᵀ with x [rows, inputs], w [outputs, inputs] and y [rows, outputs], all of one dtype, row by row without
/// gaps. Computes on the calling thread alone; one thread at a time may use an object, several may use several.
class Gemm {
 public:
  /// Name and version; empty if this build has none.
  static std::string library();
  /// Whether this machine computes in the dtype itself. True of f32 wherever there is a library.
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
