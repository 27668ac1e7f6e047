// A meeting as an operation of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "transport/cuda/control.hpp"

namespace shunt::device {

/// What was put on the stream before is visible to all ranks when they have passed the same meeting. Of its parts, the
/// second needs no note but for the tag.
void launch_meeting(const Control& control, const Note& note, cudaStream_t stream,
                    MeetingPart part = MeetingPart::whole);

/// Loads the kernels, as loading them later may wait for a rank that waits for this one.
void preload_meeting();

}  // namespace shunt::device
