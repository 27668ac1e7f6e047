#include "kernels/cuda/bulk_copy_rows.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/piece_ring.cuh"

namespace shunt::device {
namespace {

/// Each warp has its own ring and starts its own copies.
constexpr int kWarps = 4;
constexpr std::size_t kRingBytes = 48 << 10;
constexpr std::size_t kMostPieceBytes = 16 << 10;
constexpr std::size_t kMostSlots = 32;
constexpr std::size_t kSharedBytes = kWarps * (kRingBytes + kMostSlots * sizeof(std::uint64_t));

__global__ void __launch_bounds__(kWarps * 32, 1)
    bulk_copy_rows_kernel(const __grid_constant__ BulkCopyRows copy, BulkGeometry cut) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  if (*copy.stop != 0) return;
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  auto* arrivals = reinterpret_cast<std::uint64_t*>(shared + kWarps * kRingBytes) + warp * kMostSlots;
  const PieceRing ring(shared + warp * kRingBytes, arrivals, cut.piece_bytes, cut.num_slots);

  const auto num_pieces = static_cast<std::uint32_t>(cut.num_pieces);
  const auto num_jobs = static_cast<std::uint32_t>(copy.num_tokens) * num_pieces;
  const std::uint32_t stride = gridDim.x * kWarps;
  const std::uint32_t first = blockIdx.x * kWarps + warp;
  const auto offset_of = [&](std::uint32_t job) { return job % num_pieces * std::size_t(cut.piece_bytes); };
  const auto bytes_of = [&](std::uint32_t job) {
    return static_cast<std::uint32_t>(min(copy.row_bytes - offset_of(job), std::size_t(cut.piece_bytes)));
  };
  const auto fetch = [&](std::uint32_t job, std::int32_t slot) {
    if (lane == 0 && job < num_jobs)
      ring.fetch(slot, copy.x + job / num_pieces * copy.row_bytes + offset_of(job), bytes_of(job));
  };
  const auto load_term = [&](std::uint32_t job) {
    return job < num_jobs && lane < copy.topk ? copy.terms[std::size_t(job / num_pieces) * copy.topk + lane]
                                              : Term{.rank = -1};
  };

  Term next = load_term(first);
  PieceRing::Place here, free;
  std::uint32_t ahead = first;
  for (; free.slot < ring.num_slots() - 1; ++free.slot, ahead += stride) fetch(ahead, free.slot);
  for (std::uint32_t job = first; job < num_jobs; job += stride, ahead += stride) {
    const Term term = next;
    next = load_term(job + stride);
    std::byte* to = nullptr;
    if (term.rank >= 0) to = copy.out[term.rank] + term.slot * copy.row_bytes + offset_of(job);
    ring.wait(here);
    if (to) ring.send(here.slot, to, bytes_of(job));
    ::cuda::ptx::cp_async_bulk_commit_group();
    // Waits until all copies but this job's have been read from shared memory, so the slot before is free.
    ::cuda::ptx::cp_async_bulk_wait_group_read(::cuda::ptx::n32_t<1>{});
    __syncwarp();
    fetch(ahead, free.slot);
    ring.advance(here);
    ring.advance(free);
  }
  // Waiting for the reads of shared memory would suffice (see quantise_rows.cu), but a warp gets here only once.
  ::cuda::ptx::cp_async_bulk_wait_group(::cuda::ptx::n32_t<0>{});
#endif
}

}  // namespace

bool fits_bulk_copies(const BulkCopyRows& copy) {
  return copy.topk <= kMostRowsOfWarp &&
         (copy.row_bytes | reinterpret_cast<std::uintptr_t>(copy.x)) % kBulkAlignment == 0;
}

void launch(const BulkCopyRows& copy, std::int32_t sms, cudaStream_t stream) {
  if (copy.num_tokens == 0) return;
  const BulkGeometry cut = bulk_geometry(copy.row_bytes, kMostPieceBytes, kRingBytes, kMostSlots);
  const auto useful = (copy.num_tokens * cut.num_pieces + kWarps - 1) / kWarps;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(sms, useful));
  bulk_copy_rows_kernel<<<blocks, kWarps * 32, kSharedBytes, stream>>>(copy, cut);
  check(cudaGetLastError(), "start the bulk copy of rows");
}

bool has_bulk_copies() {
  constexpr int kVersionWithBulkCopies = 90;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, bulk_copy_rows_kernel), "look at a kernel");
  int device = 0;
  int shared_bytes = 0;
  check(cudaGetDevice(&device), "look up the current device");
  check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "look at a device");
  return attributes.ptxVersion >= kVersionWithBulkCopies && shared_bytes >= int{kSharedBytes};
}

void preload_bulk_copy_rows() {
  if (!has_bulk_copies()) return;
  check(cudaFuncSetAttribute(bulk_copy_rows_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "load the bulk copy of rows");
}

}  // namespace shunt::device
