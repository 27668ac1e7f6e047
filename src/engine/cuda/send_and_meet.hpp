// Dispatch without a plan in one launch: rows are sent, then all ranks are told.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/send_padded.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// The block that ends last says that this rank has come to the meeting. Nothing waits here.
struct SendAndMeet {
  SendPadded send;
  Control control;
  Note note;
};

void launch(const SendAndMeet& work, cudaStream_t stream);
void preload_send_and_meet();

}  // namespace shunt::device
