#include "engine/cuda/device_heap.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "core/cuda/check.hpp"
#include "core/cuda/on_device.hpp"
#include "core/cuda/stream.hpp"
#include "core/fail.hpp"
#include "engine/cuda/library.hpp"
#include "plan/cuda/plan_arrays.hpp"

namespace shunt {
namespace {

template <class T>
std::shared_ptr<T> pin(std::size_t count) {
  void* data = nullptr;
  device::check(cudaHostAlloc(&data, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable), "pin memory");
  return {static_cast<T*>(data), [](T* freed) { (void)cudaFreeHost(freed); }};
}

}  // namespace

PinnedMemory::PinnedMemory(std::int32_t num_ranks)
    : pages(pin<HostPage>(kMostPages)),
      watchdog_words(pin<std::uint32_t>(kMostPages * device::WatchdogWords::num_words(num_ranks))) {}

std::shared_ptr<std::byte> PinnedMemory::take_buffer(std::size_t wanted) {
  const std::size_t bytes = std::bit_ceil(wanted);  // so that engines with other options find buffers, too
  const std::lock_guard lock(mutex_);
  auto found = free_buffers_.find(bytes);
  if (found == free_buffers_.end()) found = free_buffers_.emplace(bytes, pin<std::byte>(bytes));
  const std::shared_ptr<std::byte> block = free_buffers_.extract(found).mapped();
  return {block.get(), [self = shared_from_this(), block, bytes](std::byte*) {
            const std::lock_guard guard(self->mutex_);
            self->free_buffers_.emplace(bytes, block);
          }};
}

DeviceHeap::DeviceHeap(World& world, std::size_t bytes, std::int32_t device, OwnMemory own)
    : pinned(std::move(own.pinned)),
      memory(bytes, device, world.rank().value, own.heap,
             [&](std::span<const std::byte> mine) { return world.all_gather(mine); }),
      members(world.impl()->group->members),
      most_tile_bytes(device::most_tile_bytes()),
      stream(device::make_stream()) {
  for (std::size_t i = 0; i < PinnedMemory::kMostPages; ++i) free_pages_.push_back(pinned->pages.get() + i);
  device::preload_kernels();
}

std::int32_t DeviceHeap::device_of(const World& world, std::int32_t wanted) {
  const Group& group = *world.impl()->group;
  int count = 0;
  try {
    device::check(cudaGetDeviceCount(&count), "find a device");
  } catch (const Error& error) {
    fail(error.code(), "rank {}: engine: {}; leave EngineOptions::device empty for rows in host memory", group.self,
         error.what());
  }
  if (wanted >= count)
    fail(ErrorCode::invalid_argument, "rank {}: engine: device.index is {}, but this machine has {} device{}",
         group.self, wanted, count, count == 1 ? ": 0" : "s");
  if (wanted >= 0) return wanted;
  std::int32_t place = 0;
  for (std::int32_t rank = 0; rank < group.self.value; ++rank) place += group.is_near(RankId(rank));
  return place % count;
}

std::shared_ptr<DeviceHeap> DeviceHeap::of(World& world, const EngineOptions& options) {
  struct Wish {
    std::uint64_t bytes;
    bool has_heap;
  };
  World::Impl& impl = *world.impl();
  const Group& group = *impl.group;
  const std::int32_t device = device_of(world, options.device->index);
  const device::OnDevice scope(device);
  auto& heap = impl.device_heaps[device];
  const Wish mine{options.device->heap_bytes, heap != nullptr};
  const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Wish peer = gathered<Wish>(all[rank], rank);
    if (peer.bytes != mine.bytes)
      fail(ErrorCode::mismatch, "engine: device.heap_bytes is {} on rank {} and {} on rank {}", mine.bytes, group.self,
           peer.bytes, rank);
    if (peer.has_heap != mine.has_heap)
      fail(ErrorCode::mismatch, "engine: rank {} has an engine on its device {} already, rank {} has none on its own",
           peer.has_heap ? RankId(rank) : group.self, device, peer.has_heap ? group.self : RankId(rank));
  }
  if (heap) {
    if (mine.bytes > heap->memory.bytes())
      fail(
          ErrorCode::invalid_argument,
          "rank {}: engine: device.heap_bytes is {}, but the first engine of this world on device {} made a heap of {}",
          group.self, mine.bytes, device, heap->memory.bytes());
    return heap;
  }
  // All ranks have come, so no kernel waits for one that is yet to be launched.
  OwnMemory own;
  std::exception_ptr failure;
  try {
    impl.comm->free_retired();
    own.pinned = std::make_shared<PinnedMemory>(static_cast<std::int32_t>(group.num_near()));
    own.heap = device::SymmetricHeap::allocate(mine.bytes, device, own.pinned);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const bool has_memory = !failure;
  const auto have_memory = world.all_gather(std::as_bytes(std::span(&has_memory, 1)));
  if (failure) std::rethrow_exception(failure);
  for (std::size_t rank = 0; rank < have_memory.size(); ++rank)
    if (!gathered<bool>(have_memory[rank], rank))
      fail(ErrorCode::system, "engine: rank {} has no memory for its device heap", rank);
  std::optional<World> here;
  if (group.has_far()) here = world.split(group.wiring.hosts[group.self.index()].value);
  // Outlives this world where others on its transport go on.
  heap = {new DeviceHeap(here ? *here : world, mine.bytes, device, std::move(own)),
          [comm = std::weak_ptr(impl.comm)](DeviceHeap* ended) {
            std::shared_ptr<DeviceHeap> last(ended);
            if (const auto others = comm.lock()) others->retire(std::move(last));
          }};
  world.barrier();  // all kernels are loaded, so kernels may wait for other ranks from here on
  return heap;
}

std::shared_ptr<std::byte> DeviceHeap::allocate(std::size_t bytes) {
  return {memory.allocate(bytes), [heap = shared_from_this()](std::byte* block) { heap->memory.release(block); }};
}

Tensor DeviceHeap::allocate(DType dtype, std::int64_t rows, std::int64_t cols) {
  Tensor tensor{nullptr, dtype, rows, cols, nullptr, Memory::on_device(memory.device())};
  const std::shared_ptr<std::byte> block = allocate(tensor.bytes());
  tensor.data = block.get();
  tensor.owner = block;
  return tensor;
}

std::shared_ptr<HostPage> DeviceHeap::take_page() {
  const std::lock_guard lock(mutex_);
  if (free_pages_.empty())
    fail(ErrorCode::system, "a device serves at most {} engines of a world at a time", PinnedMemory::kMostPages);
  HostPage* const page = free_pages_.back();
  free_pages_.pop_back();
  const std::size_t num_words = device::WatchdogWords::num_words(static_cast<std::int32_t>(members.size()));
  const auto index = static_cast<std::size_t>(page - pinned->pages.get());
  *page = {.fault = {}, .sizes = {}, .watchdog_words = {pinned->watchdog_words.get() + index * num_words}};
  std::fill_n(page->watchdog_words.words, num_words, 0u);
  return {page, [heap = shared_from_this()](HostPage* freed) {
            const std::lock_guard guard(heap->mutex_);
            heap->free_pages_.push_back(freed);
          }};
}

}  // namespace shunt
