// Buffers of equal size in one piece of host memory, handed out and taken back by any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace shunt::device {

class HostBuffers {
 public:
  /// `memory` holds `count` of them. `on_free` is called, on the thread that gives a buffer back, until this object
  /// ends; buffers may outlive it.
  HostBuffers(std::shared_ptr<std::byte> memory, std::size_t bytes_each, std::size_t count,
              std::function<void()> on_free)
      : shared_(std::make_shared<Shared>(std::move(memory), std::move(on_free))) {
    for (std::size_t i = 0; i < count; ++i) shared_->free.push_back(shared_->memory.get() + i * bytes_each);
  }
  ~HostBuffers() {
    const std::lock_guard lock(shared_->mutex);
    shared_->on_free = nullptr;
  }
  HostBuffers(const HostBuffers&) = delete;
  HostBuffers& operator=(const HostBuffers&) = delete;

  /// nullptr while all are in use.
  [[nodiscard]] std::shared_ptr<std::byte> take() {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->free.empty()) return nullptr;
    std::byte* const buffer = shared_->free.back();
    shared_->free.pop_back();
    return {buffer, [shared = shared_](std::byte* freed) {
              const std::lock_guard guard(shared->mutex);
              shared->free.push_back(freed);
              if (shared->on_free) shared->on_free();
            }};
  }

 private:
  struct Shared {
    Shared(std::shared_ptr<std::byte> all, std::function<void()> callback)
        : memory(std::move(all)), on_free(std::move(callback)) {}
    std::shared_ptr<std::byte> memory;
    std::mutex mutex;
    std::function<void()> on_free;
    std::vector<std::byte*> free;
  };

  std::shared_ptr<Shared> shared_;
};

}  // namespace shunt::device
