// Memory that is aligned to cache lines and only grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shunt {

class AlignedBuffer {
 public:
  /// Makes room for at least this many bytes. Previous contents may be lost; new bytes are zero.
  void reserve(std::size_t bytes) {
    if (memory_.size() < bytes + kLine) memory_.assign(bytes + kLine, std::byte{0});
  }

  [[nodiscard]] std::byte* data() {
    return memory_.data() + (kLine - reinterpret_cast<std::uintptr_t>(memory_.data()) % kLine) % kLine;
  }
  [[nodiscard]] std::size_t bytes() const { return memory_.size(); }

 private:
  static constexpr std::size_t kLine = 64;

  std::vector<std::byte> memory_;
};

}  // namespace shunt
