#include "engine/cuda/send_and_meet.hpp"

#include "core/cuda/check.hpp"
#include "kernels/cuda/send_padded.cuh"
#include "kernels/cuda/widths.hpp"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

template <class Word, bool kReplicas>
__device__ void send_and_meet(const SendAndMeet& work, std::int32_t num_words) {
  extern __shared__ std::int32_t of_experts[];
  const std::uint32_t stop = *work.send.stop;  // the same for all blocks: only the last one can find a fault
  if (blockIdx.x == 0)                         // the first to start, as it takes longest
    tell_counts<kReplicas>(work.send, of_experts, stop);
  else
    send_token<Word, kReplicas>(work.send, static_cast<std::int32_t>(blockIdx.x) - 1, of_experts, num_words, stop);
  if (stop != 0 || !is_last_block(*work.control.progress)) return;
  if (work.part == MeetingPart::whole)
    meet<MeetingPart::whole>(work.control, work.note);
  else
    meet<MeetingPart::saying>(work.control, work.note);
}

template <class Word>
__global__ void send_and_meet_kernel(const __grid_constant__ SendAndMeet work, std::int32_t num_words) {
  send_and_meet<Word, false>(work, num_words);
}

/// A kernel of its own, so that the choice of copies takes no registers from maps that have one of each expert. Left
/// alone, it would take more than the largest blocks can have.
template <class Word>
__global__ void __launch_bounds__(kMostRowThreads, 1)
    send_to_copies_and_meet_kernel(const __grid_constant__ SendAndMeet work, std::int32_t num_words) {
  send_and_meet<Word, true>(work, num_words);
}

/// The kernel for rows of such words.
template <class Word>
auto kernel_for(bool has_replicas) {
  return has_replicas ? send_to_copies_and_meet_kernel<Word> : send_and_meet_kernel<Word>;
}

}  // namespace

void launch(const SendAndMeet& work, cudaStream_t stream) {
  const SendPadded& send = work.send;
  const RowGeometry rows = row_geometry(send.row_bytes, reinterpret_cast<std::uintptr_t>(send.x));
  const auto blocks = static_cast<unsigned>(send.num_blocks());
  const auto bytes = static_cast<unsigned>(send.map.num_physical) * 4;
  for_width(rows.access_bytes, [&](auto word) {
    const auto kernel = kernel_for<decltype(word)>(send.map.has_replicas());
    kernel<<<blocks, rows.threads, bytes, stream>>>(work, rows.num_accesses);
  });
  check(cudaGetLastError(), "start to send");
}

void preload_send_and_meet() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    for (const bool has_replicas : {false, true})
      check(cudaFuncGetAttributes(&attributes, kernel_for<decltype(word)>(has_replicas)), "load the sending");
  });
}

}  // namespace shunt::device
