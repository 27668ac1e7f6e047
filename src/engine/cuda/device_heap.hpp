// What the engines of a node's ranks share on a device: memory that all ranks address, pinned pages, a stream.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/fail.hpp"
#include "engine/cuda/watchdog.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "shunt/engine.hpp"
#include "shunt/ids.hpp"
#include "transport/cuda/control.hpp"
#include "transport/cuda/symmetric_heap.hpp"

namespace shunt {

/// Pinned memory in which an engine's kernels and its host exchange words.
struct HostPage {
  device::FaultRecord fault;
  device::PlanSizes sizes;
  device::WatchdogWords watchdog_words;
};

/// Pinned memory of all engines of a heap. It is freed with the heap's memory: freeing waits for the device, where
/// other ranks may wait for the thread that frees.
struct PinnedMemory : std::enable_shared_from_this<PinnedMemory> {
  explicit PinnedMemory(std::int32_t num_ranks);

  /// A buffer. Released ones are kept for later calls.
  [[nodiscard]] std::shared_ptr<std::byte> take_buffer(std::size_t wanted);

  static constexpr std::size_t kMostPages = 1024;
  std::shared_ptr<HostPage> pages;
  std::shared_ptr<std::uint32_t> watchdog_words;

 private:
  std::mutex mutex_;
  std::multimap<std::size_t, std::shared_ptr<std::byte>> free_buffers_;  // by size
};

/// A rank's contribution to an all-gather. Throws Error(mismatch) if its size differs from T's.
template <class T>
T gathered(std::span<const std::byte> bytes, std::size_t rank) {
  T value;
  if (bytes.size() != sizeof(value))
    fail(ErrorCode::mismatch, "rank {} makes another engine: it sent {} bytes, expected {}", rank, bytes.size(),
         sizeof(value));
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

/// Allocated once, as CUDA must not allocate while ranks wait for each other. A rank's memory is freed when the last
/// rank of its process has released it: a rank may end while others still use its memory.
struct DeviceHeap : std::enable_shared_from_this<DeviceHeap> {
  struct OwnMemory {
    std::shared_ptr<PinnedMemory> pinned = nullptr;
    device::SharedMemory heap = nullptr;
  };

  /// Collective over the ranks of a node. Waits for an idle device, so no rank may have operations in progress.
  DeviceHeap(World& world, std::size_t bytes, std::int32_t device, OwnMemory own);

  /// The device of this rank; for −1, chosen by its place among the ranks of its machine. Throws
  /// Error(invalid_argument) if there is none.
  static std::int32_t device_of(const World& world, std::int32_t wanted);

  /// The heap of the world's engines on a device, shared by the ranks of this machine; the first engine makes it.
  /// Collective over all ranks.
  static std::shared_ptr<DeviceHeap> of(World& world, const EngineOptions& options);

  /// A block that is released with its last owner.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes);
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols);
  [[nodiscard]] std::shared_ptr<HostPage> take_page();

  std::shared_ptr<PinnedMemory> pinned;
  device::SymmetricHeap memory;
  std::vector<RankId> members;  ///< ranks of the transport, by rank in the heap
  std::size_t most_tile_bytes;  ///< that the device's shared memory holds
  device::Watchdog watchdog;
  /// Used by engines without a stream of the caller's. Shared, as every further stream may share a connection to the
  /// device with one whose kernels wait.
  std::shared_ptr<CUstream_st> stream;

 private:
  std::mutex mutex_;
  std::vector<HostPage*> free_pages_;
};

}  // namespace shunt
