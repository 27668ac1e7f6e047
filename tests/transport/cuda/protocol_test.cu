// Barriers on one device: two ranks are two blocks of one kernel. What they report is in engine/fault_test.cpp.
#include <gtest/gtest.h>

#include <vector>

#include "core/cuda/check.hpp"
#include "support/cuda/device.hpp"
#include "transport/cuda/barrier.cuh"

namespace shunt::test {
namespace {

using device::Control;

constexpr std::uint32_t kRounds = 2000;
constexpr std::uint32_t kWords = 4096;  // that block 0 writes into block 1's memory per round

struct Run {
  bool in_parts;  // the receiver says that it has come, then waits
  Control ranks[2];
  std::uint32_t* inbox;  // of block 1
  unsigned long long* wrong_words;
};

__device__ bool pass(const Control& control, bool in_parts) {
  using device::BarrierPart;
  const device::BarrierRecord record{0, 0, 1};
  if (!in_parts) return pass_barrier(control, record);
  if (!pass_barrier<BarrierPart::arrive>(control, record)) return false;
  __syncthreads();
  return pass_barrier<BarrierPart::wait>(control, record);
}

__global__ void send_kernel(Run run) {
  const bool sends = blockIdx.x == 0;
  const Control& control = run.ranks[blockIdx.x];
  const bool in_parts = run.in_parts && !sends;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    if (sends)
      for (std::uint32_t i = threadIdx.x; i < kWords; i += blockDim.x) run.inbox[i] = round * 7919u + i;
    __syncthreads();
    if (!pass(control, in_parts)) return;
    if (!sends)
      for (std::uint32_t i = threadIdx.x; i < kWords; i += blockDim.x)
        if (run.inbox[i] != round * 7919u + i) atomicAdd(run.wrong_words, 1ull);
    if (!pass(control, in_parts)) return;  // the inbox may be written again
  }
}

template <class T>
T* allocate(std::size_t count) {
  T* data = nullptr;
  device::check(cudaMallocManaged(&data, count * sizeof(T)), "allocate");
  device::check(cudaMemset(data, 0, count * sizeof(T)), "clear");
  return data;
}

/// Block 0 sends, block 1 receives: each round words that only that round has, through memory that is used again.
void expect_sent_between_blocks(bool in_parts) {
  const device::ControlShape shape{2, 1};
  Run run{in_parts, {}, allocate<std::uint32_t>(kWords), allocate<unsigned long long>(1)};
  auto** heaps = allocate<std::byte*>(2);
  auto** blocks = allocate<std::byte*>(2);
  auto* faults = allocate<device::FaultRecord>(2);
  const device::WatchdogWords watchdog_words{allocate<std::uint32_t>(device::WatchdogWords::num_words(2))};
  std::vector<void*> all{run.inbox, run.wrong_words, heaps, blocks, faults, watchdog_words.words};
  device::check(cudaDeviceSynchronize(), "clear");
  for (int rank = 0; rank < 2; ++rank) {
    blocks[rank] = allocate<std::byte>(shape.bytes());
    run.ranks[rank] = {.self = rank,
                       .shape = shape,
                       .heaps = heaps,
                       .blocks = blocks,
                       .published = allocate<std::byte*>(4),
                       .state = allocate<device::KernelState>(1),
                       .fault = faults + rank,
                       .watchdog_words = watchdog_words,
                       .deadline_ns = 10'000'000'000};
    all.insert(all.end(), {blocks[rank], run.ranks[rank].published, run.ranks[rank].state});
  }
  device::check(cudaDeviceSynchronize(), "clear");
  send_kernel<<<2, 256>>>(run);
  device::check(cudaGetLastError(), "start the protocol");
  device::check(cudaDeviceSynchronize(), "run the protocol");
  EXPECT_EQ(*run.wrong_words, 0u);
  EXPECT_EQ(faults[1].cause, device::FaultRecord::none);
  for (void* data : all) (void)cudaFree(data);
}

TEST(DeviceBarrier, WhatIsSentBeforeIsSeenAfterItsWholeOrItsTwoParts) {
  SHUNT_NEEDS_DEVICE();
  for (const bool in_parts : {false, true}) expect_sent_between_blocks(in_parts);
}

}  // namespace
}  // namespace shunt::test
