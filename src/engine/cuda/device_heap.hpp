// Device memory that all ranks of a node address, and what else their engines on a device share.
#pragma once

#include <cstring>
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

/// Where an engine's device and host meet: pinned memory.
struct HostPage {
  device::FaultRecord fault;
  device::PlanSizes sizes;
  device::WatchdogWords watchdog_words;
};

/// Of all engines of a heap. Pinned once: pinning more may wait for the device, and so for other ranks.
struct HostPages {
  explicit HostPages(std::int32_t num_ranks);

  static constexpr std::size_t kMost = 1024;
  std::shared_ptr<HostPage> pages;
  std::shared_ptr<std::uint32_t> watchdog_words;
};

/// What a rank has gathered; throws Error(mismatch) unless it is of the size that all ranks' are.
template <class T>
T gathered(std::span<const std::byte> bytes, std::size_t rank) {
  T value;
  if (bytes.size() != sizeof(value))
    fail(ErrorCode::mismatch, "rank {} makes something else: it sent {} bytes, expected {}", rank, bytes.size(),
         sizeof(value));
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

/// Allocated once, so that nothing is allocated while ranks wait for each other. A rank's memory lives until the last
/// rank of its process has let go of it: a rank may end while others still wait for it.
struct DeviceHeap : std::enable_shared_from_this<DeviceHeap> {
  /// Collective over the ranks of a node. Waits for the device to be idle, so no rank may have operations under way.
  DeviceHeap(World& world, std::size_t bytes, std::int32_t device);

  /// The device of this rank; −1 is by its place among the ranks of its host. Throws Error(invalid_argument) if there
  /// is none.
  static std::int32_t device_of(const World& world, std::int32_t wanted);

  /// That of the world's engines on a device, made by the first of them: of its ranks of this host. Collective over
  /// all.
  static std::shared_ptr<DeviceHeap> of(World& world, const EngineOptions& options);

  /// A block of the heap that is released with its last owner.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes);
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols);
  [[nodiscard]] std::shared_ptr<HostPage> take_page();

  std::shared_ptr<HostPages> host_pages;
  device::SymmetricHeap memory;
  std::int32_t num_ranks;
  std::vector<RankId> members;  ///< ranks of the transport, by rank in the heap
  std::size_t most_tile_bytes;  ///< of its device
  device::Watchdog watchdog;
  /// Of engines that were given none. Shared, as a stream more is a connection more to the device, in which whoever
  /// waits may hold up others.
  std::shared_ptr<CUstream_st> stream;

 private:
  std::mutex mutex_;
  std::vector<HostPage*> free_pages_;
};

}  // namespace shunt
