#include "transport/cuda/symmetric_heap.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/cuda/check.hpp"
#include "core/fail.hpp"
#include "core/process_id.hpp"

namespace shunt::device {
namespace {

/// How a peer finds a rank's heap.
struct Address {
  ProcessId process;
  std::int32_t device;
  std::uint64_t bytes;
  const SharedMemory* memory;  // for threads of the same process
  cudaIpcMemHandle_t handle;   // for other processes
  cudaError_t why_no_handle;   // not every platform gives one
};

void reach_device(std::int32_t from, std::int32_t to, std::size_t rank) {
  if (from == to) return;
  int reaches = 0;
  check(cudaDeviceCanAccessPeer(&reaches, from, to), "look for a way between devices");
  if (!reaches)
    fail(ErrorCode::unsupported, "device {} can't address the memory of device {}, which rank {} uses", from, to, rank);
  const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
  if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "open the way to a peer's device");
  (void)cudaGetLastError();
}

SharedMemory open_heap(const Address& address, std::int32_t device, std::size_t rank) {
  if (address.process == ProcessId::own()) {
    reach_device(device, address.device, rank);
    return *address.memory;
  }
  check(address.why_no_handle, "name a heap for other processes");
  void* data = nullptr;
  check(cudaIpcOpenMemHandle(&data, address.handle, cudaIpcMemLazyEnablePeerAccess), "open a peer's heap");
  return {static_cast<std::byte*>(data), [device](std::byte* closed) {
            // Closed where it was opened, whatever device the last owner's thread uses.
            int current = device;
            (void)cudaGetDevice(&current);
            (void)cudaSetDevice(device);
            (void)cudaIpcCloseMemHandle(closed);
            (void)cudaSetDevice(current);
          }};
}

std::size_t align_up(std::size_t bytes) {
  constexpr std::size_t kStep = SymmetricHeap::kAlignment;
  return std::max((bytes + kStep - 1) / kStep, std::size_t{1}) * kStep;
}

}  // namespace

SharedMemory SymmetricHeap::allocate(std::size_t bytes, std::int32_t device, std::shared_ptr<const void> companion) {
  const std::size_t all_bytes = kAlignment + align_up(bytes);
  check(cudaSetDevice(device), "choose the device");
  void* data = nullptr;
  check(cudaMalloc(&data, all_bytes), "allocate a heap");
  SharedMemory memory(static_cast<std::byte*>(data),
                      [companion = std::move(companion)](std::byte* freed) { (void)cudaFree(freed); });
  check(cudaMemset(data, 0, all_bytes), "clear a heap");
  check(cudaDeviceSynchronize(), "clear a heap");
  return memory;
}

SymmetricHeap::SymmetricHeap(std::size_t bytes, std::int32_t device, std::int32_t self, const SharedMemory& mine,
                             const AllGather& all_gather)
    : bytes_(kAlignment + align_up(bytes)), device_(device), self_(self) {
  free_.insert(kAlignment, align_up(bytes));
  check(cudaSetDevice(device), "choose the device");
  Address address{ProcessId::own(), device, bytes_, &mine, {}, cudaSuccess};
  address.why_no_handle = cudaIpcGetMemHandle(&address.handle, mine.get());
  (void)cudaGetLastError();
  const auto all = all_gather(std::as_bytes(std::span(&address, 1)));
  std::exception_ptr failure;
  try {
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      Address peer;
      if (all[rank].size() != sizeof(peer))
        fail(ErrorCode::mismatch, "rank {} sent {} bytes as the address of its heap", rank, all[rank].size());
      std::memcpy(&peer, all[rank].data(), sizeof(peer));
      if (peer.bytes != bytes_)
        fail(ErrorCode::mismatch, "rank {}'s heap has {} bytes, rank {}'s {}", self, bytes_, rank, peer.bytes);
      ranks_.push_back(static_cast<std::int32_t>(rank) == self ? mine : open_heap(peer, device, rank));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  (void)all_gather({});  // until here `mine` must outlive those who copy it
  if (failure) std::rethrow_exception(failure);
}

std::uint64_t SymmetricHeap::offset_of(const void* address) const {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base());
}

bool SymmetricHeap::contains(const void* address, std::size_t bytes) const {
  const std::less_equal<const std::byte*> le;
  const auto* begin = static_cast<const std::byte*>(address);
  return begin && le(base(), begin) && le(begin + bytes, base() + bytes_);
}

std::byte* SymmetricHeap::allocate(std::size_t bytes) {
  const std::size_t wanted = align_up(bytes);
  const std::lock_guard lock(mutex_);
  const auto offset = free_.take(wanted);
  if (!offset)
    fail(ErrorCode::system, "rank {}: no room for {} bytes in a device heap of {}, of which {} are free", self_, bytes,
         bytes_ - kAlignment, free_.total_bytes());
  live_.emplace(*offset, wanted);
  return base() + *offset;
}

void SymmetricHeap::keep(std::uint64_t offset) noexcept {
  const std::lock_guard lock(mutex_);
  const auto after = live_.upper_bound(offset);
  if (after == live_.begin()) return;
  const auto block = std::prev(after);
  if (offset - block->first < block->second) live_.erase(block);  // release() knows it no more
}

void SymmetricHeap::release(const std::byte* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto live = live_.find(offset_of(block));
  if (live == live_.end()) return;
  free_.insert(live->first, live->second);
  live_.erase(live);
}

}  // namespace shunt::device
