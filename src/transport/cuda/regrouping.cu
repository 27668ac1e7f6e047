#include "transport/cuda/regrouping.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

__global__ void regrouping_kernel(const __grid_constant__ Regrouping regrouping) {
  const Control& control = regrouping.control;
  const Control& elsewhere = regrouping.elsewhere;
  __shared__ std::int32_t ahead;  // of this rank: the one that came to most meetings
  if (threadIdx.x == 0) ahead = 0;
  const std::uint32_t mine = control.progress->meetings;
  const bool all_came = meet(elsewhere, {.offset = mine, .second_offset = 0, .tag = regrouping.tag});
  const std::uint32_t round = elsewhere.progress->meetings;
  const std::byte* const own = elsewhere.blocks[elsewhere.self];
  for (std::int32_t peer = threadIdx.x; all_came && peer < elsewhere.shape.num_ranks; peer += blockDim.x) {
    if (!elsewhere.blocks[peer]) continue;
    const auto theirs = reinterpret_cast<const Note*>(own + elsewhere.shape.note(round, peer))->offset;
    atomicMax(&ahead, static_cast<std::int32_t>(static_cast<std::uint32_t>(theirs) - mine));
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  control.progress->fault = all_came ? 0 : 1;
  if (all_came) {
    control.progress->meetings = mine + static_cast<std::uint32_t>(ahead);
  } else {
    elsewhere.progress->meetings = round - 1;
    elsewhere.progress->fault = 0;
  }
}

}  // namespace

void launch(const Regrouping& regrouping, cudaStream_t stream) {
  const int threads = std::clamp(regrouping.control.shape.num_ranks, 1, 1024);
  regrouping_kernel<<<1, threads, 0, stream>>>(regrouping);
  check(cudaGetLastError(), "start to regroup");
}

void preload_regrouping() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, regrouping_kernel), "load the regrouping");
}

}  // namespace shunt::device
