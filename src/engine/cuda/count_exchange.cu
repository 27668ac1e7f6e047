#include "core/cuda/check.hpp"
#include "engine/cuda/count_exchange.hpp"
#include "plan/cuda/slots.cuh"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;

/// Called by one whole block. The counts are in place before the signal of the meeting: meet() begins with a barrier,
/// after which it releases. Loads of a batch are on their way together.
__device__ void push_counts(const CountExchange& exchange) {
  const Control& control = exchange.control;
  const std::uint32_t meeting = control.progress->meetings + 1;
  const std::int32_t num_columns = exchange.shape.num_columns();
  const std::int32_t num_words = num_columns * control.shape.num_ranks;
  const std::size_t offset = control.shape.words(meeting, control.self);
  constexpr int kAtOnce = 8;
  for (std::int32_t begin = threadIdx.x; begin < num_words; begin += kAtOnce * kThreads) {
    std::byte* blocks[kAtOnce];
    std::uint32_t counts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int32_t word = begin + i * kThreads;
      if (word >= num_words) continue;
      blocks[i] = control.blocks[word / num_columns] + offset;
      counts[i] = exchange.plan.totals[word % num_columns];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int32_t word = begin + i * kThreads;
      if (word < num_words) reinterpret_cast<std::uint32_t*>(blocks[i])[word % num_columns] = counts[i];
    }
  }
}

/// What this rank's router did wrong is reported after the meeting, so that the others need not wait for it there.
__device__ void report_bad_entries(const CountExchange& exchange) {
  for (std::int32_t tile = threadIdx.x; tile < exchange.shape.num_tiles(); tile += kThreads) {
    const std::int32_t entry = exchange.plan.bad_entry[tile];
    if (entry < 0) continue;
    const std::int64_t all = std::int64_t{tile} * kTileTokens * exchange.shape.topk + entry;
    report(exchange.control,
           {FaultRecord::routing, exchange.control.self, exchange.note.tag,
            static_cast<std::uint64_t>(all / exchange.shape.topk), static_cast<std::uint64_t>(exchange.experts[all])});
  }
}

/// A rank that has failed receives nothing: experts that read on the device how many rows they have find none.
__device__ void tell_of_no_rows(const CountExchange& exchange) {
  const std::int32_t num_local = exchange.shape.num_local;
  for (std::int32_t local = threadIdx.x; local < num_local; local += kThreads) exchange.plan.expert_counts[local] = 0;
  for (std::int32_t local = threadIdx.x; local <= num_local; local += kThreads) exchange.plan.expert_offsets[local] = 0;
  if (threadIdx.x == 0) *exchange.plan.sizes = *exchange.told = {};
}

/// False if this rank has failed, now or before.
__device__ bool exchange_counts(const CountExchange& exchange) {
  const Control& control = exchange.control;
  if (is_faulty(control)) return false;
  add_up_tiles(exchange.shape, exchange.plan);
  __syncthreads();
  push_counts(exchange);
  __syncthreads();
  if (!meet(control, exchange.note)) return false;
  const std::uint32_t meeting = control.progress->meetings;
  const auto* counts =
      reinterpret_cast<const std::uint32_t*>(control.blocks[control.self] + control.shape.words(meeting, 0));
  derive_slots<kThreads>(exchange.shape, exchange.map, exchange.rules, control.self, counts, control.shape.num_words,
                         exchange.plan);
  report_bad_entries(exchange);
  const PlanSizes sizes = *exchange.plan.sizes;
  if (threadIdx.x == 0) *exchange.told = sizes;
  if (threadIdx.x == 0 && sizes.overflowed && !exchange.drops)
    report(control, {FaultRecord::overflow, control.self, exchange.note.tag,
                     static_cast<std::uint64_t>(exchange.rules.max_rows), static_cast<std::uint64_t>(sizes.most_rows)});
  __syncthreads();
  return !is_faulty(control);
}

__global__ void __launch_bounds__(kThreads) count_exchange_kernel(const __grid_constant__ CountExchange exchange) {
  if (!exchange_counts(exchange)) tell_of_no_rows(exchange);
}

}  // namespace

void launch(const CountExchange& exchange, cudaStream_t stream) {
  count_exchange_kernel<<<1, kThreads, 0, stream>>>(exchange);
  check(cudaGetLastError(), "start to exchange counts");
}

void preload_count_exchange() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, count_exchange_kernel), "load the exchange of counts");
}

}  // namespace shunt::device
