// The emulation itself: what tests of shunt's device code rely on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/nanoseconds.cuh"
#include "core/cuda/stream.hpp"

namespace shunt::test {
namespace {

using device::check;
using ::testing::Each;
using ::testing::ElementsAre;

/// Memory that kernels and the host see.
template <class T>
class Shared {
 public:
  explicit Shared(std::size_t count, T value = {}) : count_(count) {
    check(cudaMallocManaged(&data_, count * sizeof(T), cudaMemAttachGlobal), "allocate");
    std::fill_n(data_, count, value);
  }
  ~Shared() { (void)cudaFree(data_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::vector<T> values() const {
    check(cudaDeviceSynchronize(), "wait");
    return {data_, data_ + count_};
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

__global__ void reverse_kernel(std::int32_t* values) {
  extern __shared__ std::int32_t shared[];
  shared[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(CudaOnCpu, ABarrierWaitsForAllThreadsOfTheBlock) {
  const Shared<std::int32_t> values(1000);
  std::iota(values.get(), values.get() + 1000, 0);
  reverse_kernel<<<1, 1000, 4000>>>(values.get());
  std::vector<std::int32_t> reversed(1000);
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  EXPECT_EQ(values.values(), reversed);
}

__global__ void leave_early_kernel(std::int32_t* counts) {
  if (threadIdx.x % 3 == 0) return;
  counts[threadIdx.x] = __syncthreads_count(threadIdx.x % 2);
}

TEST(CudaOnCpu, ThreadsThatHaveEndedAreNotWaitedForAtBarriers) {
  const Shared<std::int32_t> counts(60, -1);
  leave_early_kernel<<<1, 60>>>(counts.get());
  const std::vector<std::int32_t> values = counts.values();
  for (std::size_t thread = 0; thread < values.size(); ++thread) EXPECT_EQ(values[thread], thread % 3 == 0 ? -1 : 20);
}

__global__ void warp_kernel(std::int32_t* sums, std::uint32_t* ballots) {
  std::int32_t sum = static_cast<std::int32_t>(threadIdx.x);
  for (int half = 4; half > 0; half /= 2) sum += __shfl_xor_sync(0xffff'ffffu, sum, half);
  sums[threadIdx.x] = __shfl_sync(0xffff'ffffu, sum, 5, 8);
  if (threadIdx.x % 2 == 0) ballots[threadIdx.x] = __ballot_sync(0x5555'5555u, threadIdx.x % 4 == 0);
}

TEST(CudaOnCpu, LanesOfAWarpExchangeValuesEvenIfTheWarpIsNotWhole) {
  const Shared<std::int32_t> sums(40);
  const Shared<std::uint32_t> ballots(40);
  warp_kernel<<<1, 40>>>(sums.get(), ballots.get());
  const std::vector<std::int32_t> values = sums.values();
  for (std::size_t thread = 0; thread < 40; ++thread) {
    EXPECT_EQ(values[thread], 28 + 64 * static_cast<std::int32_t>(thread / 8));
    EXPECT_EQ(ballots.get()[thread], thread % 2 == 1 ? 0 : thread < 32 ? 0x1111'1111u : 0x11u);
  }
}

__global__ void reduce_kernel(std::int32_t* results) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t sum = __reduce_add_sync(0xffff'ffffu, lane);
  const std::int32_t most = __reduce_max_sync(0xffff'ffffu, lane % 10);
  const unsigned same = __match_any_sync(0xffff'ffffu, lane / 5);
  if (lane == 0) results[0] = sum;
  if (lane == 1) results[1] = most;
  if (lane == 7) results[2] = static_cast<std::int32_t>(same);
}

TEST(CudaOnCpu, LanesThatDoNotExistTakeNoPartInReductions) {
  const Shared<std::int32_t> results(3);
  reduce_kernel<<<1, 12>>>(results.get());
  EXPECT_THAT(results.values(), ElementsAre(66, 9, 0b11'1110'0000));
}

__global__ void wait_for_last_block_kernel(std::uint32_t* arrived, std::int32_t* seen) {
  if (blockIdx.x + 1 == gridDim.x) atomicAdd(arrived, 1u);
  while (atomicAdd(arrived, 0u) == 0) (void)device::nanoseconds();
  seen[blockIdx.x] = 1;
}

TEST(CudaOnCpu, ABlockMayWaitForALaterOne) {
  const Shared<std::uint32_t> arrived(1);
  const Shared<std::int32_t> seen(4);
  wait_for_last_block_kernel<<<4, 1>>>(arrived.get(), seen.get());
  EXPECT_THAT(seen.values(), Each(1));
}

__global__ void delay_kernel(std::uint64_t time_ns) {
  const std::uint64_t begin = device::nanoseconds();
  while (device::nanoseconds() - begin < time_ns) {
  }
}
__global__ void append_kernel(std::int32_t* list, std::int32_t value) {
  if (threadIdx.x == 0) list[++list[0]] = value;
}

TEST(CudaOnCpu, DelaysOfManyBlocksPassTogether) {
  const auto begin = std::chrono::steady_clock::now();
  delay_kernel<<<100, 64>>>(50'000'000);
  check(cudaDeviceSynchronize(), "wait");
  const auto passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(passed, std::chrono::milliseconds(50));
  EXPECT_LT(passed, std::chrono::seconds(2));
}

TEST(CudaOnCpu, AStreamWaitsForAnEventOfAnother) {
  const Shared<std::int32_t> list(4);
  const auto first = device::make_stream();
  const auto second = device::make_stream();
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  delay_kernel<<<1, 1, 0, first.get()>>>(20'000'000);
  append_kernel<<<1, 32, 0, first.get()>>>(list.get(), 7);
  check(cudaEventRecord(event, first.get()), "record");
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  check(cudaStreamWaitEvent(second.get(), event, 0), "wait");
  append_kernel<<<1, 32, 0, second.get()>>>(list.get(), 8);
  EXPECT_THAT(list.values(), ElementsAre(2, 7, 8, 0));
  (void)cudaEventDestroy(event);
}

TEST(CudaOnCpu, AGraphRunsWhatWasCapturedOnAllOfItsStreamsEachTime) {
  const Shared<std::int32_t> list(8);
  const auto stream = device::make_stream();
  const auto side = device::make_stream();
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  const device::CapturedGraph graph(stream.get(), [&] {
    append_kernel<<<1, 1, 0, stream.get()>>>(list.get(), 1);
    check(cudaEventRecord(event, stream.get()), "fork");
    check(cudaStreamWaitEvent(side.get(), event, 0), "fork");
    append_kernel<<<1, 1, 0, side.get()>>>(list.get(), 2);
    check(cudaEventRecord(event, side.get()), "join");
    check(cudaStreamWaitEvent(stream.get(), event, 0), "join");
    append_kernel<<<1, 1, 0, stream.get()>>>(list.get(), 3);
  });
  EXPECT_THAT(list.values(), Each(0));
  graph.replay();
  graph.replay();
  EXPECT_THAT(list.values(), ElementsAre(6, 1, 2, 3, 1, 2, 3, 0));
  (void)cudaEventDestroy(event);
}

cudaError_t end_of_capture(const std::function<void(cudaStream_t, cudaStream_t)>& work) {
  const auto stream = device::make_stream();
  const auto side = device::make_stream();
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capture");
  work(stream.get(), side.get());
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream.get(), &graph);
  EXPECT_EQ(graph == nullptr, status != cudaSuccess);
  if (graph) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();
  return status;
}

TEST(CudaOnCpu, WhatMayNotBeCapturedBreaksTheCapture) {
  EXPECT_EQ(end_of_capture([](cudaStream_t, cudaStream_t) {}), cudaSuccess);
  EXPECT_EQ(end_of_capture([](cudaStream_t stream, cudaStream_t) {
              EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end_of_capture([](cudaStream_t, cudaStream_t) {
              void* data = nullptr;
              EXPECT_EQ(cudaMalloc(&data, 1), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end_of_capture([](cudaStream_t, cudaStream_t) {
              auto mode = cudaStreamCaptureModeRelaxed;
              check(cudaThreadExchangeStreamCaptureMode(&mode), "stand aside");
              void* data = nullptr;
              EXPECT_EQ(cudaMalloc(&data, 1), cudaSuccess);
              (void)cudaFree(data);
              check(cudaThreadExchangeStreamCaptureMode(&mode), "stand aside");
            }),
            cudaSuccess);
  EXPECT_EQ(end_of_capture([](cudaStream_t stream, cudaStream_t side) {
              cudaEvent_t event = nullptr;
              check(cudaEventCreate(&event), "make an event");
              check(cudaEventRecord(event, stream), "fork");
              check(cudaStreamWaitEvent(side, event, 0), "fork");
              delay_kernel<<<1, 1, 0, side>>>(0);
              (void)cudaEventDestroy(event);
            }),
            cudaErrorStreamCaptureUnjoined);
}

TEST(CudaOnCpu, LaunchesThatADeviceRefusesAreRefused) {
  delay_kernel<<<1, 1025>>>(0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  delay_kernel<<<0, 1>>>(0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  delay_kernel<<<1, 1, (48 << 10) + 1>>>(0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaOnCpu, FreeingMemoryWaitsForTheWorkOfAllStreams) {
  const auto stream = device::make_stream();
  std::int32_t* list = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&list), 1 << 20), "allocate");
  check(cudaMemset(list, 0, 1 << 20), "clear");
  delay_kernel<<<1, 1, 0, stream.get()>>>(20'000'000);
  append_kernel<<<1, 1, 0, stream.get()>>>(list, 5);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  check(cudaFree(list), "free");
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaSuccess);
}

}  // namespace
}  // namespace shunt::test
