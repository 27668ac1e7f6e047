// Device memory is part of one shared memory file per process, so that other processes can map what they get a handle
// of. The file is named by nothing, and ends with the last process that has it open.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "errors.hpp"
#include "stream.hpp"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{256} << 30;  // of address space
constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kTotalBytes = std::size_t{64} << 30;  // what the device reports
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 30;
/// Memory that was just allocated looks used up to this size; filling more takes time.
constexpr std::size_t kMostPoisonedBytes = 1 << 20;

/// Never destroyed: threads of streams use it to the end of the process.
class Memory {
 public:
  static Memory& instance() {
    static auto* const memory = new Memory;
    return *memory;
  }

  [[nodiscard]] bool is_usable() const { return base_ != nullptr; }
  [[nodiscard]] std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }

  std::byte* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t step = bytes < kPage ? kAlignment : kPage;
    const std::size_t wanted = (bytes + step - 1) / step * step;
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const auto [begin, size] = *gap;
      const std::size_t from = (begin + step - 1) / step * step;
      if (used_ + wanted > kTotalBytes || from + wanted > begin + size) continue;
      gaps_.erase(gap);
      if (from > begin) gaps_.emplace(begin, from - begin);
      if (begin + size > from + wanted) gaps_.emplace(from + wanted, begin + size - from - wanted);
      blocks_.emplace(from, Block{wanted, current_device()});
      used_ += wanted;
      kept_ -= std::min(kept_, wanted);
      if (wanted <= kMostPoisonedBytes) std::memset(base_ + from, 0xa5, wanted);
      return base_ + from;
    }
    return nullptr;
  }

  /// False if no block begins there.
  bool begins_block(const void* address) {
    const std::lock_guard lock(mutex_);
    return is_inside(address) && blocks_.contains(offset_of(address));
  }
  void free(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(offset_of(address));
    std::size_t begin = block->first;
    std::size_t size = block->second.bytes;
    blocks_.erase(block);
    used_ -= size;
    // What is given to the system costs a page fault per page when it is allocated again.
    if (kept_ + size <= kMostKeptBytes)
      kept_ += size;
    else if (size >= kPage)
      (void)madvise(base_ + begin, size, MADV_REMOVE);
    auto next = gaps_.lower_bound(begin);
    if (next != gaps_.end() && begin + size == next->first) {
      size += next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin())
      if (const auto before = std::prev(next); before->first + before->second == begin) {
        before->second += size;
        return;
      }
    gaps_.emplace(begin, size);
  }

  struct Found {
    std::size_t offset;  // in the file
    std::size_t bytes;
    int device;
  };
  /// The block around an address; without bytes if there is none.
  Found find(const void* address) {
    const std::lock_guard lock(mutex_);
    if (!is_inside(address)) return {};
    auto block = blocks_.upper_bound(offset_of(address));
    if (block == blocks_.begin()) return {};
    --block;
    if (offset_of(address) >= block->first + block->second.bytes) return {};
    return {block->first, block->second.bytes, block->second.device};
  }
  [[nodiscard]] int file() const { return file_; }

  // Pinned memory, and memory of other processes.
  std::mutex others_mutex;
  std::map<const void*, std::size_t> pinned;
  std::map<const void*, std::size_t> mapped;

 private:
  struct Block {
    std::size_t bytes;
    int device;
  };

  Memory() : file_(memfd_create("cuda_on_cpu", MFD_CLOEXEC)) {
    if (file_ < 0 || ftruncate(file_, kArenaBytes) != 0) return;
    void* const base = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (base == MAP_FAILED) return;
    (void)madvise(base, kArenaBytes, MADV_DONTDUMP);
    base_ = static_cast<std::byte*>(base);
    gaps_.emplace(0, kArenaBytes);
  }

  [[nodiscard]] bool is_inside(const void* address) const {
    return base_ && address >= base_ && address < base_ + kArenaBytes;
  }
  [[nodiscard]] std::size_t offset_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - base_);
  }

  int file_;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> gaps_;  // offset → bytes
  std::map<std::size_t, Block> blocks_;      // by offset
  std::size_t used_ = 0;
  std::size_t kept_ = 0;  // of what is free: about as much still has pages
};

/// As CUDA does, freeing memory waits for all work of the process, and keeps other threads from submitting any until
/// then. So a rank that frees memory while others wait for its kernels hangs here as on a device.
template <class Release>
void free_when_idle(const Release& release) {
  const std::unique_lock lock(submission_mutex());
  for (const auto& queue : all_queues()) queue->finish();
  release();
}

/// What a cudaIpcMemHandle_t holds.
struct Handle {
  pid_t process;
  int file;
  std::size_t offset;
  std::size_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

/// Copies between pageable memory and a device hold up the caller, as far as it can tell.
bool is_pageable(const void* address) {
  Memory& memory = Memory::instance();
  if (memory.find(address).bytes > 0) return false;
  const std::lock_guard lock(memory.others_mutex);
  for (const auto* ranges : {&memory.pinned, &memory.mapped}) {
    auto range = ranges->upper_bound(address);
    if (range == ranges->begin()) continue;
    --range;
    if (static_cast<const std::byte*>(address) < static_cast<const std::byte*>(range->first) + range->second)
      return false;
  }
  return true;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  (void)cudaStreamIsCapturing(stream, &status);
  return status != cudaStreamCaptureStatusNone;
}

cudaError_t copy(void* to, const void* from, cudaStream_t stream, std::function<void()> run) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  const cudaError_t status = submit(stream, {std::move(run), cudaGraphNodeTypeMemcpy});
  if (status != cudaSuccess || is_capturing(stream) || !(is_pageable(to) || is_pageable(from))) return status;
  return cudaStreamSynchronize(stream);
}

}  // namespace
}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (Memory::instance().is_usable()) *data = Memory::instance().allocate(bytes);
  return *data ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocManaged(void** data, size_t bytes, unsigned) { return cudaMalloc(data, bytes); }
cudaError_t cudaFree(void* data) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  if (!data) return cudaSuccess;
  if (!Memory::instance().begins_block(data)) return fail(cudaErrorInvalidValue);
  free_when_idle([data] { Memory::instance().free(data); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  *data = std::aligned_alloc(kPage, rounded);
  if (!*data) return fail(cudaErrorMemoryAllocation);
  const std::lock_guard lock(Memory::instance().others_mutex);
  Memory::instance().pinned.emplace(*data, rounded);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  if (!data) return cudaSuccess;
  {
    const std::lock_guard lock(Memory::instance().others_mutex);
    if (Memory::instance().pinned.erase(data) == 0) return fail(cudaErrorInvalidValue);
  }
  free_when_idle([data] { std::free(data); });
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  const std::lock_guard lock(Memory::instance().others_mutex);
  return Memory::instance().pinned.emplace(data, bytes).second ? cudaSuccess
                                                               : fail(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* data) {
  const std::lock_guard lock(Memory::instance().others_mutex);
  return Memory::instance().pinned.erase(data) == 1 ? cudaSuccess : fail(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = kTotalBytes;
  *free = kTotalBytes - Memory::instance().used();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  const auto found = Memory::instance().find(address);
  attributes->device = found.bytes > 0 ? found.device : cudaInvalidDeviceId;
  attributes->type = found.bytes > 0        ? cudaMemoryTypeDevice
                     : is_pageable(address) ? cudaMemoryTypeUnregistered
                                            : cudaMemoryTypeHost;
  attributes->hostPointer = found.bytes > 0 ? nullptr : const_cast<void*>(address);
  attributes->devicePointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, stream, [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memmove(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                   width);
  });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  if (const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr); status != cudaSuccess) return status;
  return cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  return submit(stream, {[=] { std::memset(data, value, bytes); }, cudaGraphNodeTypeMemset});
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  const auto found = Memory::instance().find(data);
  if (found.bytes == 0) return fail(cudaErrorInvalidValue);
  const Handle made{getpid(), Memory::instance().file(), found.offset, found.bytes};
  *handle = {};
  std::memcpy(handle, &made, sizeof(made));
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  Handle from{};
  std::memcpy(&from, &handle, sizeof(from));
  const std::string path = "/proc/" + std::to_string(from.process) + "/fd/" + std::to_string(from.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return fail(cudaErrorInvalidResourceHandle);
  const std::size_t shift = from.offset % kPage;
  const std::size_t bytes = (shift + from.bytes + kPage - 1) / kPage * kPage;
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(from.offset - shift));
  close(file);
  if (base == MAP_FAILED) return fail(cudaErrorMapBufferObjectFailed);
  *data = static_cast<std::byte*>(base) + shift;
  const std::lock_guard lock(Memory::instance().others_mutex);
  Memory::instance().mapped.emplace(*data, bytes - shift);
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* data) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(Memory::instance().others_mutex);
    const auto found = Memory::instance().mapped.find(data);
    if (found == Memory::instance().mapped.end()) return fail(cudaErrorInvalidValue);
    bytes = found->second;
    Memory::instance().mapped.erase(found);
  }
  const std::size_t shift = reinterpret_cast<std::uintptr_t>(data) % kPage;
  free_when_idle([=] { munmap(static_cast<std::byte*>(data) - shift, bytes + shift); });
  return cudaSuccess;
}

}  // extern "C"
