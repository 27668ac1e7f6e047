// A meeting as an operation of a stream.
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

/// What was put on the stream before is visible to all ranks when they have passed the same meeting. Of its parts, the
/// second needs no note but for the tag. Where this rank has failed, now or before, outputs are poisoned.
void launch_meeting(const Control& control, const Note& note, cudaStream_t stream,
                    MeetingPart part = MeetingPart::whole, const Poison& poison = {});

/// Loads the kernels, as loading them later may wait for a rank that waits for this one.
void preload_meeting();

}  // namespace shunt::device
