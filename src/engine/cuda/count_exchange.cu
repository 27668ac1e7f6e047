#include "core/cuda/check.hpp"
#include "engine/cuda/count_exchange.hpp"
#include "engine/cuda/tag.hpp"
#include "plan/cuda/slots.cuh"
#include "transport/cuda/barrier.cuh"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;

/// Called by one whole block. The counts are in place before the barrier's signal: pass_barrier() begins with a
/// __syncthreads(), after which it releases.
__device__ void add_up_and_push_counts(const CountExchange& exchange) {
  const Control& control = exchange.control;
  const std::size_t offset = control.shape.words(control.state->barriers + 1, control.self);
  add_up_tiles(exchange.shape, exchange.plan, [&](std::int32_t column, std::uint32_t count) {
    constexpr int kAtOnce = 8;  // loads in flight
    for (std::int32_t begin = 0; begin < control.shape.num_ranks; begin += kAtOnce) {
      std::byte* blocks[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        blocks[i] = begin + i < control.shape.num_ranks ? control.blocks[begin + i] : nullptr;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (blocks[i]) reinterpret_cast<std::uint32_t*>(blocks[i] + offset)[column] = count;
    }
  });
}

/// The first bad entry in this thread's tiles; −1 if there is none. Tiles go to the last threads first, as the first
/// threads add up counts.
__device__ std::int64_t bad_entry_of_thread(const CountExchange& exchange) {
  for (std::int32_t tile = kThreads - 1 - threadIdx.x; tile < exchange.shape.num_tiles(); tile += kThreads)
    if (const std::int32_t entry = exchange.plan.bad_entry[tile]; entry >= 0)
      return std::int64_t{tile} * kTileTokens * exchange.shape.topk + entry;
  return -1;
}

/// Called by a whole block, of which at least one thread has a bad entry. This rank arrives at the barrier once more,
/// with the reason why it will arrive at no later one.
__device__ void refuse(const CountExchange& exchange, std::int64_t bad_entry) {
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = ~0ull;
  __syncthreads();
  if (bad_entry >= 0) atomicMin(&first, static_cast<unsigned long long>(bad_entry));
  __syncthreads();
  const auto entry = static_cast<std::int64_t>(first);
  const BadEntry bad{static_cast<std::int32_t>(entry / exchange.shape.topk), exchange.experts[entry]};
  const BarrierRecord record{exchange.record.offset, bad.packed(), Tag::at(Phase::refused, exchange.record.tag)};
  pass_barrier<BarrierPart::arrive>(exchange.control, record);
  if (threadIdx.x == 0)
    report(exchange.control, {FaultRecord::routing, exchange.control.self, exchange.record.tag, 0, bad.packed()});
}

/// After a failure: experts that read their row counts on the device find zero.
__device__ void publish_no_rows(const CountExchange& exchange) {
  const std::int32_t num_local = exchange.shape.num_local;
  for (std::int32_t local = threadIdx.x; local < num_local; local += kThreads) exchange.plan.expert_counts[local] = 0;
  for (std::int32_t local = threadIdx.x; local <= num_local; local += kThreads) exchange.plan.expert_offsets[local] = 0;
  if (threadIdx.x == 0) *exchange.plan.sizes = *exchange.host_sizes = {};
}

/// False if this rank has failed, now or before.
__device__ bool exchange_counts(const CountExchange& exchange) {
  const Control& control = exchange.control;
  if (is_faulty(control)) return false;
  const std::int64_t bad_entry = bad_entry_of_thread(exchange);
  add_up_and_push_counts(exchange);
  if (__syncthreads_or(bad_entry >= 0)) {
    refuse(exchange, bad_entry);
    return false;
  }
  if (!pass_barrier(control, exchange.record)) return false;
  const std::uint32_t barrier = control.state->barriers;
  const auto* counts =
      reinterpret_cast<const std::uint32_t*>(control.blocks[control.self] + control.shape.words(barrier, 0));
  const PlanSizes sizes = derive_slots<kThreads>(exchange.shape, exchange.map, exchange.rules, control.self, counts,
                                                 control.shape.num_words, exchange.plan);
  if (threadIdx.x == 0) *exchange.host_sizes = sizes;
  if (!sizes.overflowed || exchange.drops) return true;
  if (threadIdx.x == 0)
    report(control, {FaultRecord::overflow, control.self, exchange.record.tag,
                     static_cast<std::uint64_t>(exchange.rules.max_rows), static_cast<std::uint64_t>(sizes.most_rows)});
  __syncthreads();  // sizes are written before publish_no_rows() overwrites them
  return false;
}

__global__ void __launch_bounds__(kThreads) count_exchange_kernel(const __grid_constant__ CountExchange exchange) {
  if (!exchange_counts(exchange)) publish_no_rows(exchange);
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
