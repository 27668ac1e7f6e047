// Buffers for slices that are being sent, a bounded number at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <optional>

#include "transport/slice_link.hpp"

namespace shunt {

class SliceBuffers {
 public:
  /// `on_free` is called when a buffer is freed, on the thread that frees it, maybe after this object's end.
  SliceBuffers(std::int32_t most_open, std::function<void()> on_free)
      : most_open_(most_open), shared_(std::make_shared<Shared>(std::move(on_free))) {}

  /// As SliceLink::open.
  std::optional<OutSlice> open(std::size_t bytes) {
    if (shared_->num_open >= most_open_) return std::nullopt;
    auto* const data = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    ++shared_->num_open;
    return OutSlice{{data, bytes}, std::shared_ptr<void>(data, [shared = shared_](void* buffer) {
                      ::operator delete(buffer, kAlignment);
                      --shared->num_open;
                      shared->on_free();
                    })};
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  struct Shared {
    explicit Shared(std::function<void()> callback) : on_free(std::move(callback)) {}
    std::function<void()> on_free;
    std::atomic<std::int32_t> num_open{0};
  };

  std::int32_t most_open_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace shunt
