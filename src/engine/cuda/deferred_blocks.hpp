// Blocks without an owner that work on a stream may still use; they are freed later.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace shunt::device {

/// Work on the stream is numbered in order. A released block may be in use by any work that has begun, so it is freed
/// only when all of that is complete. Later work of the same stream may reuse it at once.
class DeferredBlocks : public std::enable_shared_from_this<DeferredBlocks> {
 public:
  using Block = std::shared_ptr<std::byte>;

  /// Frees a block, when any stream may use it.
  using Free = std::function<void(std::byte*)>;
  explicit DeferredBlocks(Free free) : free_(std::move(free)) {}
  DeferredBlocks(const DeferredBlocks&) = delete;
  DeferredBlocks& operator=(const DeferredBlocks&) = delete;
  ~DeferredBlocks() { complete(begun_); }

  /// Begins the next work: its number belongs to everything put on the stream from now on.
  std::uint64_t begin_work() {
    const std::lock_guard lock(mutex_);
    return ++begun_;
  }

  /// Call when all work up to this number is complete.
  void complete(std::uint64_t work) {
    std::vector<Deferred> over;
    {
      const std::lock_guard lock(mutex_);
      if (work > completed_) completed_ = work;
      std::erase_if(deferred_, [&](const Deferred& each) {
        if (each.last_work > completed_) return false;
        over.push_back(each);
        return true;
      });
    }
    for (const Deferred& each : over) free_(each.block);
  }

  [[nodiscard]] bool empty() {
    const std::lock_guard lock(mutex_);
    return deferred_.empty();
  }

  /// A block for later work of the stream: a deferred one of the same size, or make(bytes).
  template <class Make>
  [[nodiscard]] Block take(std::size_t bytes, const Make& make) {
    std::byte* block = take_deferred(bytes);
    if (!block) block = make(bytes);
    return {block, [self = shared_from_this(), bytes](std::byte* released) { self->defer(released, bytes); }};
  }

 private:
  struct Deferred {
    std::byte* block;
    std::size_t bytes;
    std::uint64_t last_work;  // the last work that may use it
  };

  std::byte* take_deferred(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(deferred_, bytes, &Deferred::bytes);
    if (found == deferred_.end()) return nullptr;
    std::byte* const block = found->block;
    deferred_.erase(found);
    return block;
  }

  void defer(std::byte* block, std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (begun_ > completed_) {
        deferred_.push_back({block, bytes, begun_});
        return;
      }
    }
    free_(block);
  }

  Free free_;
  std::mutex mutex_;
  std::uint64_t begun_ = 0;
  std::uint64_t completed_ = 0;
  std::vector<Deferred> deferred_;
};

}  // namespace shunt::device
