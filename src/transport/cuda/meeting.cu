#include "transport/cuda/meeting.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

__global__ void meeting_kernel(Control control, Note note) { meet(control, note); }

}  // namespace

void launch_meeting(const Control& control, const Note& note, cudaStream_t stream) {
  const int threads = std::clamp(control.shape.num_ranks, 1, 1024);
  meeting_kernel<<<1, threads, 0, stream>>>(control, note);
  check(cudaGetLastError(), "start a meeting");
}

void preload_meeting() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, meeting_kernel), "load the meeting");
}

}  // namespace shunt::device
