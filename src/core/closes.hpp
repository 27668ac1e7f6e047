// The sums that end with one row of a token in the reduction tree.
#pragma once

#include <cstdint>

namespace shunt {

/// From the leaves to the root.
enum class Closes : std::uint8_t {
  nothing,      ///< another expert of the same rank follows
  rank,         ///< the last term of its rank
  node,         ///< … and of its node, which is the token's own: no rounding
  remote_node,  ///< … and of its node, which is another one: its sum is rounded to the wire dtype
};

}  // namespace shunt
