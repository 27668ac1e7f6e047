#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/send_padded.hpp"
#include "kernels/cuda/widths.hpp"
#include "shunt/routing.hpp"

namespace shunt::device {
namespace {

/// The copy that serves (token, expert), as ExpertMap::choose says; −1 where there is no such expert.
__device__ std::int32_t copy_of(const SendPadded& send, std::int32_t token, std::int32_t expert) {
  if (expert < 0 || expert >= send.num_experts) return -1;
  const std::int32_t begin = send.copies_begin[expert];
  return send.copies[begin + (send.self + token) % (send.copies_begin[expert + 1] - begin)];
}

/// Earlier tokens that the same copy serves. Called by the whole block; the same on all threads.
__device__ std::int32_t count_before(const SendPadded& send, std::int32_t token, std::int32_t expert) {
  __shared__ std::int32_t before;
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  const std::int32_t num_copies = send.copies_begin[expert + 1] - send.copies_begin[expert];
  std::int32_t mine = 0;
#pragma unroll 4
  for (std::int32_t entry = threadIdx.x; entry < token * send.topk; entry += blockDim.x)
    if (send.experts[entry] == expert && (token - entry / send.topk) % num_copies == 0) ++mine;
  mine = __reduce_add_sync(0xffff'ffffu, mine);
  if (threadIdx.x % 32 == 0 && mine > 0) atomicAdd(&before, mine);
  __syncthreads();
  return before;
}

/// A token's entries in the order in which their rows are summed; entry `choice` of `token` writes its term, or ends
/// the list. Called by one thread.
__device__ void write_term(const SendPadded& send, std::int32_t token, std::int32_t choice, std::int32_t physical,
                           std::int32_t slot) {
  const std::int32_t key = physical < 0 ? 0 : send.key_of[physical];
  std::int32_t before = 0, all = 0, next_key = 0x7fff'ffff, next_rank = -1;
  for (std::int32_t other = 0; other < send.topk; ++other) {
    const std::int32_t copy = copy_of(send, token, send.experts[token * send.topk + other]);
    if (copy < 0) continue;
    const std::int32_t other_key = send.key_of[copy];
    ++all;
    before += other_key < key;
    if (other_key <= key || other_key >= next_key) continue;
    next_key = other_key;
    next_rank = send.rank_of[copy];
  }
  Term* terms = send.terms + token * send.topk;
  if (choice >= all) terms[choice].rank = -1;
  if (physical < 0) return;
  const std::int32_t rank = send.rank_of[physical];
  const bool ends_node = next_rank < 0 || send.node_of[next_rank] != send.node_of[rank];
  const bool is_home = send.node_of[rank] == send.node_of[send.self];
  const Closes closes =
      ends_node ? (is_home ? Closes::node : Closes::remote_node) : (next_rank != rank ? Closes::rank : Closes::nothing);
  const float weight = send.weights ? send.weights[token * send.topk + choice] : 1.0f;
  terms[before] = {rank, slot, weight, static_cast<std::int16_t>(choice), static_cast<std::int16_t>(closes)};
}

__device__ void tell_counts(const SendPadded& send, std::int32_t* histogram) {
  for (std::int32_t expert = threadIdx.x; expert < send.num_physical; expert += blockDim.x) histogram[expert] = 0;
  __syncthreads();
  for (std::int32_t entry = threadIdx.x; entry < send.num_tokens * send.topk; entry += blockDim.x)
    if (const std::int32_t copy = copy_of(send, entry / send.topk, send.experts[entry]); copy >= 0)
      atomicAdd(&histogram[copy], 1);
  __syncthreads();
  for (std::int32_t expert = threadIdx.x; expert < send.num_physical; expert += blockDim.x) {
    const std::int32_t rank = send.rank_of[expert];
    const std::int32_t local = expert - send.first_of_rank[rank];
    send.counts[rank][local * send.num_ranks + send.self] = histogram[expert];
  }
}

template <class Word>
__global__ void send_padded_kernel(const __grid_constant__ SendPadded send, std::int32_t num_words) {
  extern __shared__ std::int32_t histogram[];
  if (*send.stop != 0) return;
  const auto entry = static_cast<std::int32_t>(blockIdx.x);
  if (entry == send.num_tokens * send.topk) return tell_counts(send, histogram);
  const std::int32_t token = entry / send.topk;
  const std::int32_t expert = send.experts[entry];
  const std::int32_t physical = copy_of(send, token, expert);
  if (physical < 0) {
    if (threadIdx.x == 0) write_term(send, token, entry % send.topk, -1, -1);
    return;
  }
  const auto* from = reinterpret_cast<const Word*>(send.x + token * send.row_bytes);
  Word words[kAccessesPerThread];
  const auto load = [&](std::int32_t begin) {
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) words[i] = load_to_keep(from + word);
  };
  load(threadIdx.x);
  const std::int32_t rank = send.rank_of[physical];
  const std::int32_t run = (physical - send.first_of_rank[rank]) * send.num_ranks + send.self;
  const std::int32_t slot = run * send.max_tokens + count_before(send, token, expert);
  auto* to = reinterpret_cast<Word*>(send.rows[rank] + slot * send.row_bytes);
  for (std::int32_t begin = threadIdx.x; begin < num_words; begin += kAccessesPerThread * blockDim.x) {
    if (begin != threadIdx.x) load(begin);
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) store_to_leave(to + word, words[i]);
  }
  if (threadIdx.x == 0) write_term(send, token, entry % send.topk, physical, slot);
}

}  // namespace

void launch(const SendPadded& send, cudaStream_t stream) {
  const RowGeometry rows = row_geometry(send.row_bytes, reinterpret_cast<std::uintptr_t>(send.x));
  const auto blocks = static_cast<unsigned>(send.num_tokens * send.topk + 1);
  const auto bytes = static_cast<unsigned>(send.num_physical) * 4;
  for_width(rows.access_bytes, [&](auto word) {
    send_padded_kernel<decltype(word)><<<blocks, rows.threads, bytes, stream>>>(send, rows.num_accesses);
  });
  check(cudaGetLastError(), "start to send");
}

void preload_send_padded() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, send_padded_kernel<decltype(word)>), "load the sending");
  });
}

}  // namespace shunt::device
