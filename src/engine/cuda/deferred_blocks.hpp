// Memory that nobody holds any more, but that work on a stream may still use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace shunt::device {

/// Work on a stream has numbers, in its order. A block that is let go of may be in use by any work that has begun, so
/// it rests until all of that is complete, and only then is given back. The stream's own later work need not wait for
/// that.
class DeferredBlocks : public std::enable_shared_from_this<DeferredBlocks> {
 public:
  using Block = std::shared_ptr<std::byte>;

  /// What gives a block back is called when it may be used by anyone.
  using GiveBack = std::function<void(std::byte*)>;
  explicit DeferredBlocks(GiveBack give_back) : give_back_(std::move(give_back)) {}
  DeferredBlocks(const DeferredBlocks&) = delete;
  DeferredBlocks& operator=(const DeferredBlocks&) = delete;
  ~DeferredBlocks() { complete(begun_); }

  /// The number of what is put on the stream from now on.
  std::uint64_t begin_work() {
    const std::lock_guard lock(mutex_);
    return ++begun_;
  }

  /// Everything is complete that was put on the stream up to the end of this work.
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
    for (const Deferred& each : over) give_back_(each.block);
  }

  [[nodiscard]] bool empty() {
    const std::lock_guard lock(mutex_);
    return deferred_.empty();
  }

  /// For later work of the stream: a block of so many bytes that rests, or what `make` gives.
  template <class Make>
  [[nodiscard]] Block take(std::size_t bytes, const Make& make) {
    std::byte* block = take_deferred(bytes);
    if (!block) block = make(bytes);
    return {block, [self = shared_from_this(), bytes](std::byte* let_go) { self->rest(let_go, bytes); }};
  }

 private:
  struct Deferred {
    std::byte* block;
    std::size_t bytes;
    std::uint64_t last_work;  // that may use it
  };

  std::byte* take_deferred(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (auto each = deferred_.begin(); each != deferred_.end(); ++each) {
      if (each->bytes != bytes) continue;
      std::byte* const block = each->block;
      deferred_.erase(each);
      return block;
    }
    return nullptr;
  }

  void rest(std::byte* block, std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (begun_ > completed_) {
        deferred_.push_back({block, bytes, begun_});
        return;
      }
    }
    give_back_(block);
  }

  GiveBack give_back_;
  std::mutex mutex_;
  std::uint64_t begun_ = 0;
  std::uint64_t completed_ = 0;
  std::vector<Deferred> deferred_;
};

}  // namespace shunt::device
