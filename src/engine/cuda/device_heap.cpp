#include "shunt/device_heap.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/cuda/check.hpp"
#include "core/cuda/on_device.hpp"
#include "core/cuda/stream.hpp"
#include "core/fail.hpp"
#include "core/process_id.hpp"
#include "engine/cuda/heap_impl.hpp"
#include "engine/cuda/preload.hpp"
#include "engine/world_impl.hpp"
#include "plan/cuda/tile_memory.hpp"

namespace shunt {
namespace {

// Of CUDA_DEVICE_MAX_CONNECTIONS.
constexpr std::int32_t kDefaultConnections = 8;
constexpr std::int32_t kMostConnections = 32;

std::int32_t current_device(std::int32_t wanted) {
  int count = 0;
  device::check(cudaGetDeviceCount(&count), "find a device");
  int current = wanted;
  if (wanted < 0) device::check(cudaGetDevice(&current), "look up the current device");
  if (current >= count)
    fail(ErrorCode::invalid_argument, "device heap: there is no device {}, only {}", current, count);
  return current;
}

/// Streams of a process share its connections to a device, in which whoever waits holds up what comes later.
void check_connections(World& world, std::int32_t device) {
  struct Home {
    ProcessId process;
    std::int32_t device;
  };
  const Home mine{ProcessId::own(), device};
  std::int32_t beside = 0;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    Home other;
    std::memcpy(&other, bytes.data(), sizeof(other));
    beside += other.process == mine.process && other.device == mine.device;
  }
  const char* set = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const std::int32_t connections = set ? std::min(std::atoi(set), kMostConnections) : kDefaultConnections;
  if (beside > kMostConnections)
    fail(ErrorCode::unsupported, "device heap: {} ranks of this process share device {}, which serves at most {}",
         beside, device, kMostConnections);
  if (beside > connections)
    fail(ErrorCode::unsupported,
         "device heap: {} ranks of this process share device {} and its {} connections, and would wait for each other "
         "forever; set CUDA_DEVICE_MAX_CONNECTIONS to {} or more, at most {}, before CUDA starts",
         beside, device, connections, beside, kMostConnections);
}

template <class T>
std::shared_ptr<T> pin(std::size_t count) {
  void* data = nullptr;
  device::check(cudaHostAlloc(&data, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable), "pin memory");
  return {static_cast<T*>(data), [](T* freed) { (void)cudaFreeHost(freed); }};
}

}  // namespace

HostPages::HostPages(std::int32_t num_ranks)
    : pages(pin<HostPage>(kMost)), vigils(pin<std::uint32_t>(kMost * device::Vigil::num_words(num_ranks))) {}

DeviceHeap::Impl::Impl(World& world, const DeviceHeapOptions& options, std::int32_t device)
    : host_pages(std::make_shared<HostPages>(world.size())),
      memory(
          options.bytes, device, world.rank().value,
          [&](std::span<const std::byte> mine) { return world.all_gather(mine); }, host_pages),
      num_ranks(world.size()),
      members(world.impl()->group->members),
      most_tile_bytes(device::most_tile_bytes()) {
  stream = device::make_stream();
  for (std::size_t i = 0; i < HostPages::kMost; ++i) free_pages_.push_back(host_pages->pages.get() + i);
  device::preload_kernels();
}

std::shared_ptr<std::byte> DeviceHeap::Impl::allocate(std::size_t bytes) {
  return {memory.allocate(bytes), [heap = shared_from_this()](std::byte* block) { heap->memory.release(block); }};
}

std::shared_ptr<HostPage> DeviceHeap::Impl::take_page() {
  const std::lock_guard lock(mutex_);
  if (free_pages_.empty())
    fail(ErrorCode::system, "a device heap serves at most {} engines at a time", HostPages::kMost);
  HostPage* const page = free_pages_.back();
  free_pages_.pop_back();
  const std::size_t num_words = device::Vigil::num_words(num_ranks);
  const auto index = static_cast<std::size_t>(page - host_pages->pages.get());
  *page = {.fault = {}, .sizes = {}, .vigil = {host_pages->vigils.get() + index * num_words}};
  std::fill_n(page->vigil.words, num_words, 0u);
  return {page, [heap = shared_from_this()](HostPage* freed) {
            const std::lock_guard guard(heap->mutex_);
            heap->free_pages_.push_back(freed);
          }};
}

DeviceHeap::DeviceHeap(World& world, const DeviceHeapOptions& options) {
  const std::int32_t device = current_device(options.device);
  const device::OnDevice scope(device);
  const Group& group = *world.impl()->group;
  std::optional<World> here;
  if (group.has_far()) here = world.split(group.wiring.hosts[group.self.index()].value);
  World& host = here ? *here : world;
  check_connections(host, device);
  impl_ = std::make_shared<Impl>(host, options, device);
  world.barrier();  // all kernels are loaded: from now on ranks may wait for each other
}

Tensor DeviceHeap::allocate(DType dtype, std::int64_t rows, std::int64_t cols) const {
  if (rows < 0 || cols < 0) fail(ErrorCode::invalid_argument, "device heap: can't allocate [{}, {}]", rows, cols);
  Tensor tensor{nullptr, dtype, rows, cols, nullptr};
  const auto block = impl_->allocate(tensor.bytes());
  tensor.data = block.get();
  tensor.owner = block;
  return tensor;
}

std::int32_t DeviceHeap::device() const { return impl_->memory.device(); }

}  // namespace shunt
