#include "transport/cuda/meeting.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

// Besides those that wait for a peer each: threads that poison outputs.
constexpr int kFewestThreads = 128;

__device__ void fill(const Region& region, std::uint32_t word) {
  const auto address = reinterpret_cast<std::uintptr_t>(region.data);
  const std::size_t head = min((16 - address % 16) % 16, region.bytes);
  const std::size_t num_quads = (region.bytes - head) / 16;
  const std::size_t tail = head + num_quads * 16;
  auto* const quads = reinterpret_cast<uint4*>(region.data + head);
  for (std::size_t i = threadIdx.x; i < num_quads; i += blockDim.x) quads[i] = make_uint4(word, word, word, word);
  const auto byte = static_cast<std::byte>(word & 0xff);
  if (threadIdx.x < head) region.data[threadIdx.x] = byte;
  if (tail + threadIdx.x < region.bytes) region.data[tail + threadIdx.x] = byte;
}

template <MeetingPart kPart>
__global__ void meeting_kernel(const __grid_constant__ Control control, const __grid_constant__ Note note,
                               const __grid_constant__ Poison poison) {
  if (meet<kPart>(control, note)) return;
  for (const Region& output : poison.outputs) fill(output, ~0u);
  fill(poison.counts, 0);
}

constexpr auto kernel_of(MeetingPart part) {
  switch (part) {
    case MeetingPart::saying: return meeting_kernel<MeetingPart::saying>;
    case MeetingPart::waiting: return meeting_kernel<MeetingPart::waiting>;
    default: return meeting_kernel<MeetingPart::whole>;
  }
}

}  // namespace

void launch_meeting(const Control& control, const Note& note, cudaStream_t stream, MeetingPart part,
                    const Poison& poison) {
  const int threads = std::clamp(control.shape.num_ranks, kFewestThreads, 1024);
  kernel_of(part)<<<1, threads, 0, stream>>>(control, note, poison);
  check(cudaGetLastError(), "start a meeting");
}

void preload_meeting() {
  for (const MeetingPart part : {MeetingPart::whole, MeetingPart::saying, MeetingPart::waiting}) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel_of(part)), "load the meeting");
  }
}

}  // namespace shunt::device
