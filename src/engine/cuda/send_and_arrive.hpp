// Dispatch of `padded` in one launch: sends rows, then arrives at the barrier.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/send_padded.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// The last thread block arrives at the barrier. Nothing waits.
struct SendAndArrive {
  SendPadded send;
  Control control;
  BarrierRecord record;
};

void launch(const SendAndArrive& work, cudaStream_t stream);
void preload_send_and_arrive();

}  // namespace shunt::device
