// What ranks compare when they meet.
#pragma once

#include <cstdint>

#include "engine/op_kind.hpp"

namespace shunt::device {

/// Ranks meet at the beginning of an operation, when they show each other memory, and at its end, when it is done with.
enum class Phase : std::uint8_t { begin, end };

struct Tag {
  OpKind kind;
  Phase phase;
  std::uint64_t plan_hash;

  [[nodiscard]] constexpr std::uint64_t packed() const {
    return (plan_hash & kHashMask) | std::uint64_t{static_cast<std::uint8_t>(phase)} << 48 |
           (std::uint64_t{static_cast<std::uint8_t>(kind)} + 1) << 56;  // cleared memory is no tag
  }
  static constexpr Tag unpack(std::uint64_t packed) {
    return {static_cast<OpKind>((packed >> 56) - 1), static_cast<Phase>(packed >> 48 & 0xff), packed & kHashMask};
  }

 private:
  static constexpr std::uint64_t kHashMask = (std::uint64_t{1} << 48) - 1;
};

}  // namespace shunt::device
