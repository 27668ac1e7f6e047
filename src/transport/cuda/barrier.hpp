// A barrier of ranks as an operation on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "shunt/tensor.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// All of a contiguous tensor.
inline Region region_of(const Tensor& tensor) { return {tensor.data, tensor.bytes()}; }

/// What an operation that has failed leaves in its outputs: never what was there before.
struct Poison {
  Region outputs[2] = {};  ///< all bytes become 0xff, which is NaN in every dtype
  Region counts = {};      ///< all bytes become 0
};

/// Whatever precedes it on the stream is visible to all ranks that have passed the same barrier. The waiting half uses
/// the record's tag only. Outputs are poisoned if this rank has failed, now or before.
void launch_barrier(const Control& control, const BarrierRecord& record, cudaStream_t stream,
                    BarrierPart part = BarrierPart::whole, const Poison& poison = {});

/// Loads the kernels: a first launch may wait for the device, on which a kernel may wait for this rank.
void preload_barrier();

}  // namespace shunt::device
