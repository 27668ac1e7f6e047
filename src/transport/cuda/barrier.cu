#include "transport/cuda/barrier.hpp"

#include <algorithm>

#include "core/cuda/early_launch.cuh"
#include "transport/cuda/barrier.cuh"

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

template <BarrierPart kPart>
__global__ void barrier_kernel(const __grid_constant__ Control control, const __grid_constant__ BarrierRecord record,
                               const __grid_constant__ Poison poison) {
  wait_for_stream();
  if constexpr (kPart == BarrierPart::arrive) let_next_start();
  const bool has_passed = pass_barrier<kPart>(control, record);
  if constexpr (kPart != BarrierPart::arrive) let_next_start();  // not before: peers' kernels may need the room
  if (has_passed) return;
  for (const Region& output : poison.outputs) fill(output, ~0u);
  fill(poison.counts, 0);
}

constexpr auto kernel_of(BarrierPart part) {
  switch (part) {
    case BarrierPart::arrive: return barrier_kernel<BarrierPart::arrive>;
    case BarrierPart::wait: return barrier_kernel<BarrierPart::wait>;
    default: return barrier_kernel<BarrierPart::whole>;
  }
}

}  // namespace

void launch_barrier(const Control& control, const BarrierRecord& record, cudaStream_t stream, BarrierPart part,
                    const Poison& poison) {
  const int threads = std::clamp(control.shape.num_ranks, kFewestThreads, 1024);
  launch_early(kernel_of(part), 1, threads, 0, stream, control, record, poison);
  check(cudaGetLastError(), "start a barrier");
}

void preload_barrier() {
  for (const BarrierPart part : {BarrierPart::whole, BarrierPart::arrive, BarrierPart::wait}) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel_of(part)), "load the barrier");
  }
}

}  // namespace shunt::device
