#include "engine/cuda/send_and_arrive.hpp"

#include "core/cuda/early_launch.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/send_padded.cuh"
#include "transport/cuda/barrier.cuh"

namespace shunt::device {
namespace {

template <class Word>
__global__ void send_and_arrive_kernel(const __grid_constant__ SendAndArrive work, std::int32_t num_words) {
  extern __shared__ std::int32_t of_experts[];
  wait_for_stream();
  let_next_start();
  const std::uint32_t stop = *work.send.stop;  // equal in all blocks, as only the last one can record a fault
  if (blockIdx.x == 0)                         // starts first, as it takes longest
    publish_counts(work.send, of_experts, stop);
  else
    send_token<Word>(work.send, static_cast<std::int32_t>(blockIdx.x) - 1, of_experts, num_words, stop);
  if (stop != 0 || !is_last_block(*work.control.state)) return;
  pass_barrier<BarrierPart::arrive>(work.control, work.record);
}

}  // namespace

void launch(const SendAndArrive& work, cudaStream_t stream) {
  const SendPadded& send = work.send;
  const RowGeometry rows = row_geometry(send.row_bytes, reinterpret_cast<std::uintptr_t>(send.x));
  const auto blocks = static_cast<unsigned>(send.num_blocks());
  const auto bytes = static_cast<unsigned>(send.map.num_physical) * 4;
  for_width(rows.access_bytes, [&](auto word) {
    launch_early(send_and_arrive_kernel<decltype(word)>, blocks, rows.threads, bytes, stream, work, rows.num_accesses);
  });
  check(cudaGetLastError(), "start to send");
}

void preload_send_and_arrive() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, send_and_arrive_kernel<decltype(word)>), "load the sending");
  });
}

}  // namespace shunt::device
