// Strong index types: a RankId can't be passed as an ExpertId.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "shunt/language.hpp"

namespace shunt {

template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}

  /// −1 means "none": a dropped expert, an unassigned slot.
  [[nodiscard]] constexpr bool valid() const { return value >= 0; }
  /// Index into containers; requires valid().
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value); }

  constexpr auto operator<=>(const Id&) const = default;
};

using RankId = Id<struct RankTag>;  ///< one expert-parallel participant
using NodeId = Id<struct NodeTag>;  ///< ranks that address each other's memory
using HostId =
    Id<struct HostTag>;  ///< a machine within which a transport shares memory: one node or several virtual ones
using NicId = Id<struct NicTag>;            ///< a network interface of a machine
using ExpertId = Id<struct ExpertTag>;      ///< a logical expert, as the router names it
using PhysicalId = Id<struct PhysicalTag>;  ///< one copy of an expert on one rank
using Slot = Id<struct SlotTag>;            ///< a row's final position in a receiver's output

}  // namespace shunt

template <class Tag>
struct std::hash<shunt::Id<Tag>> {
  std::size_t operator()(shunt::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.value); }
};
