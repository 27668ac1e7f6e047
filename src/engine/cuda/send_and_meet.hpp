// Dispatch without a plan in one launch: rows are sent, then ranks meet.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/send_padded.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// The block that ends last is the only one left, so it may wait for other ranks as a kernel of one block may.
struct SendAndMeet {
  SendPadded send;
  Control control;
  Note note;
  MeetingPart part;  ///< whole or saying
};

void launch(const SendAndMeet& work, cudaStream_t stream);
void preload_send_and_meet();

}  // namespace shunt::device
