// Device functions of a dispatch without a plan.
#pragma once

#include "kernels/cuda/access.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/send_padded.hpp"
#include "shunt/routing.hpp"

namespace shunt::device {

/// A copy of an expert, and the address of its rank's rows: null if there is no such expert or its rank is left out.
struct ExpertCopy {
  std::int32_t physical;
  std::int32_t rank;
  std::byte* rows;

  __device__ explicit operator bool() const { return rows != nullptr; }
};

/// True if no earlier choice of the token names the same expert; repeated entries are dropped, as there is no slot for
/// them. The token's entries are in the cache by then.
__device__ inline bool is_first_mention(const SendPadded& send, std::int32_t entry, std::int32_t expert) {
  bool is_first = true;
  for (std::int32_t other = entry / send.topk * send.topk; other < entry; ++other)
    is_first = is_first && send.experts[other] != expert;
  return is_first;
}

__device__ inline ExpertCopy copy_of(const SendPadded& send, std::int32_t expert) {
  if (expert < 0 || expert >= send.map.num_experts) return {-1, -1, nullptr};
  const std::int32_t physical = send.map.only_copy[expert];
  const std::int32_t rank = send.map.rank_of[physical];
  return {physical, rank, send.rows[rank]};
}

/// A token's choices, in its block's shared memory.
struct PaddedChoices {
  std::int32_t rank[Routing::kMaxTopK];
  std::int32_t key[Routing::kMaxTopK];  ///< −1: dropped
  std::int32_t slot[Routing::kMaxTopK];
  std::byte* rows[Routing::kMaxTopK];

  /// Sets the choice's slot to that of the first token with this expert.
  __device__ void set(const SendPadded& send, std::int32_t choice, std::int32_t expert) {
    const ExpertCopy copy = copy_of(send, expert);
    rank[choice] = copy.rank;
    rows[choice] = copy.rows;
    key[choice] = -1;
    if (!copy) return;
    key[choice] = send.map.key_of[copy.physical];
    slot[choice] =
        ((copy.physical - send.map.first_of_rank[copy.rank]) * send.map.num_ranks + send.self) * send.max_tokens;
  }

  /// Moves the slot by one, for an earlier token with the same expert.
  __device__ void skip_row(std::int32_t choice) {
    if (key[choice] >= 0) atomicAdd(&slot[choice], 1);
  }

  /// Writes the choice's term in summation order; dropped choices end the list.
  __device__ void write_term(const SendPadded& send, std::int32_t token, std::int32_t choice) const {
    std::int32_t before = 0, all = 0, next = -1;
    for (std::int32_t other = 0; other < send.topk; ++other) {
      if (key[other] < 0) continue;
      ++all;
      if (key[other] < key[choice]) ++before;
      if (key[other] > key[choice] && (next < 0 || key[other] < key[next])) next = other;
    }
    Term* const terms = send.terms + token * send.topk;
    if (choice >= all) terms[choice].rank = -1;
    if (key[choice] < 0) return;
    const auto node = [&](std::int32_t of_rank) { return send.map.node_of[of_rank]; };
    const std::int32_t here = rank[choice];
    const bool is_home = send.flat || node(here) == node(send.self);
    Closes closes = Closes::nothing;
    if (next < 0 || (!send.flat && node(rank[next]) != node(here)))
      closes = is_home ? Closes::node : Closes::remote_node;
    else if (!send.flat && rank[next] != here)
      closes = Closes::rank;
    const float weight = send.weights ? send.weights[token * send.topk + choice] : 1.0f;
    terms[before] = {here, slot[choice], weight, static_cast<std::int16_t>(choice), static_cast<std::int16_t>(closes)};
  }
};

/// Executed by a whole block. choice_of: a word per expert. The row is read once, and is in flight while slots are
/// computed. If `stop` is not 0, nothing is written; its value may be in flight too.
template <class Word>
__device__ void send_token(const SendPadded& send, std::int32_t token, std::int32_t* choice_of, std::int32_t num_words,
                           std::uint32_t stop) {
  __shared__ PaddedChoices choices;
  const auto* from = reinterpret_cast<const Word*>(send.x + token * send.row_bytes);
  Word words[kAccessesPerThread];
  const auto load_words = [&](std::int32_t begin) {
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) words[i] = load_once(from + word);
  };
  constexpr std::int32_t kEntriesAtOnce = 8;
  const std::int32_t num_earlier = token * send.topk;
  std::int32_t earlier[kEntriesAtOnce];
  const auto load_earlier = [&](std::int32_t begin) {
#pragma unroll
    for (std::int32_t i = 0; i < kEntriesAtOnce; ++i) {
      const std::int32_t entry = begin + i * blockDim.x;
      earlier[i] = entry < num_earlier ? send.experts[entry] : -1;
    }
  };
  const auto is_expert = [&](std::int32_t expert) { return expert >= 0 && expert < send.map.num_experts; };

  const std::int32_t first = threadIdx.x < send.topk ? send.experts[num_earlier + threadIdx.x] : -1;
  load_earlier(threadIdx.x);
  load_words(threadIdx.x);
  for (std::int32_t expert = threadIdx.x; expert < send.map.num_experts; expert += blockDim.x) choice_of[expert] = -1;
  __syncthreads();
  for (std::int32_t choice = threadIdx.x; choice < send.topk; choice += blockDim.x) {
    const std::int32_t named = choice == threadIdx.x ? first : send.experts[num_earlier + choice];
    const std::int32_t expert = is_first_mention(send, num_earlier + choice, named) ? named : -1;
    if (is_expert(expert)) choice_of[expert] = choice;
    choices.set(send, choice, expert);
  }
  __syncthreads();
  for (std::int32_t begin = threadIdx.x; begin < num_earlier; begin += kEntriesAtOnce * blockDim.x) {
    if (begin != threadIdx.x) load_earlier(begin);
#pragma unroll
    for (std::int32_t i = 0; i < kEntriesAtOnce; ++i) {
      const std::int32_t choice = is_expert(earlier[i]) ? choice_of[earlier[i]] : -1;
      const std::int32_t entry = begin + i * static_cast<std::int32_t>(blockDim.x);
      if (choice >= 0 && is_first_mention(send, entry, earlier[i])) choices.skip_row(choice);
    }
  }
  __syncthreads();
  if (stop != 0) return;
  for (std::int32_t begin = threadIdx.x; begin < num_words; begin += kAccessesPerThread * blockDim.x) {
    if (begin != threadIdx.x) load_words(begin);
    for (std::int32_t choice = 0; choice < send.topk; ++choice) {
      if (!choices.rows[choice]) continue;
      auto* to = reinterpret_cast<Word*>(choices.rows[choice] + choices.slot[choice] * send.row_bytes);
#pragma unroll
      for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
        if (const std::int32_t word = begin + i * blockDim.x; word < num_words) store_evict_first(to + word, words[i]);
    }
  }
  const float* const scales = send.scales + token * send.num_scales;
  for (std::int32_t i = threadIdx.x; i < send.topk * send.num_scales; i += blockDim.x) {
    const std::int32_t choice = i / send.num_scales;
    const std::int32_t scale = i % send.num_scales;
    if (choices.rows[choice])
      send.row_scales[choices.rank[choice]][std::int64_t{choices.slot[choice]} * send.num_scales + scale] =
          scales[scale];
  }
  for (std::int32_t choice = threadIdx.x; choice < send.topk; choice += blockDim.x)
    choices.write_term(send, token, choice);
}

/// Writes the counts to every rank that takes part, and zero counts for ranks that are left out, which have sent
/// nothing. Executed by a whole block. histogram: a word per physical expert. stop: as in send_token().
__device__ inline void publish_counts(const SendPadded& send, std::int32_t* histogram, std::uint32_t stop) {
  for (std::int32_t expert = threadIdx.x; expert < send.map.num_physical; expert += blockDim.x) histogram[expert] = 0;
  __syncthreads();
  for (std::int32_t entry = threadIdx.x; entry < send.num_tokens * send.topk; entry += blockDim.x) {
    const std::int32_t expert = send.experts[entry];
    const ExpertCopy copy = copy_of(send, expert);
    if (copy && is_first_mention(send, entry, expert)) atomicAdd(&histogram[copy.physical], 1);
  }
  __syncthreads();
  if (stop != 0) return;
  for (std::int32_t expert = threadIdx.x; expert < send.map.num_physical; expert += blockDim.x) {
    const std::int32_t rank = send.map.rank_of[expert];
    const std::int32_t local = expert - send.map.first_of_rank[rank];
    if (send.rows[rank]) send.counts[rank][local * send.map.num_ranks + send.self] = histogram[expert];
  }
  const std::int32_t num_local = send.map.first_of_rank[send.self + 1] - send.map.first_of_rank[send.self];
  for (std::int32_t run = threadIdx.x; run < num_local * send.map.num_ranks; run += blockDim.x)
    if (!send.rows[run % send.map.num_ranks]) send.counts[send.self][run] = 0;
}

}  // namespace shunt::device
