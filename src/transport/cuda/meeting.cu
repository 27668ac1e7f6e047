#include "transport/cuda/meeting.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

template <MeetingPart kPart>
__global__ void meeting_kernel(Control control, Note note) {
  meet<kPart>(control, note);
}

constexpr auto kernel_of(MeetingPart part) {
  switch (part) {
    case MeetingPart::saying: return meeting_kernel<MeetingPart::saying>;
    case MeetingPart::waiting: return meeting_kernel<MeetingPart::waiting>;
    default: return meeting_kernel<MeetingPart::whole>;
  }
}

}  // namespace

void launch_meeting(const Control& control, const Note& note, cudaStream_t stream, MeetingPart part) {
  const int threads = std::clamp(control.shape.num_ranks, 1, 1024);
  kernel_of(part)<<<1, threads, 0, stream>>>(control, note);
  check(cudaGetLastError(), "start a meeting");
}

void preload_meeting() {
  for (const MeetingPart part : {MeetingPart::whole, MeetingPart::saying, MeetingPart::waiting}) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel_of(part)), "load the meeting");
  }
}

}  // namespace shunt::device
