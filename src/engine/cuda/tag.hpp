// The tag of a barrier: the operation that a rank is at, compared by all ranks.
#pragma once

#include <cstdint>

#include "engine/op_kind.hpp"

namespace shunt::device {

/// An operation has a barrier at its beginning, where ranks publish memory, and one at its end, after which that memory
/// is free. A rank whose input makes no sense arrives with `refused` instead, so that its peers need not wait for it.
enum class Phase : std::uint8_t { begin, end, refused };

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

  /// The same operation, at another phase.
  static constexpr std::uint64_t at(Phase phase, std::uint64_t packed) {
    Tag tag = unpack(packed);
    tag.phase = phase;
    return tag.packed();
  }

 private:
  static constexpr std::uint64_t kHashMask = (std::uint64_t{1} << 48) - 1;
};

/// The first bad entry of a routing; a rank that refuses a plan publishes it in place of a second offset.
struct BadEntry {
  std::int32_t token;
  std::int32_t expert;

  [[nodiscard]] constexpr std::uint64_t packed() const {
    return kNoOffset | std::uint64_t{static_cast<std::uint32_t>(token)} << 32 | static_cast<std::uint32_t>(expert);
  }
  static constexpr BadEntry unpack(std::uint64_t packed) {
    return {static_cast<std::int32_t>((packed & ~kNoOffset) >> 32), static_cast<std::int32_t>(packed)};
  }

 private:
  static constexpr std::uint64_t kNoOffset = std::uint64_t{1} << 63;  // tokens are not negative
};

}  // namespace shunt::device
