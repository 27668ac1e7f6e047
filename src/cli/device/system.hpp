// One way to shuffle on a device, as the benchmark drives it.
#pragma once

#include <string>

#include "cli/shuffle/verifier.hpp"
#include "shunt/tensor.hpp"

namespace shunt::cli {

/// plan(), dispatch() and combine() are collective, put their work on this rank's stream and don't wait for it. Tensors
/// are device memory.
class DeviceSystem {
 public:
  virtual ~DeviceSystem() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual Layout layout() const = 0;
  [[nodiscard]] virtual SumOrder order() const = 0;

  virtual void plan() = 0;
  virtual void dispatch() = 0;
  virtual void combine() = 0;
  /// The kernels of dispatch and combine alone, without signals, where has_kernels().
  [[nodiscard]] virtual bool has_kernels() const { return false; }
  virtual void dispatch_kernel() {}
  virtual void combine_kernel() {}
  /// Every dispatch must be followed by a combine.
  [[nodiscard]] virtual bool takes_turns() const { return false; }
  /// Throws what went wrong on the device, once its work is done.
  virtual void check() {}

  [[nodiscard]] virtual ConstTensor rows() const = 0;
  /// Of fp8 rows; else empty.
  [[nodiscard]] virtual ConstTensor scales() const { return {}; }
  [[nodiscard]] virtual Tensor expert_out() const = 0;
  [[nodiscard]] virtual ConstTensor result() const = 0;

  /// Rows read plus rows written by one dispatch of all ranks, given their tokens and the rows they deliver.
  [[nodiscard]] virtual std::uint64_t rows_touched(std::uint64_t tokens, std::uint64_t delivered) const = 0;
};

}  // namespace shunt::cli
