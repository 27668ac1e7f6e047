// What ends with one row of a token in the reduction tree.
#pragma once

#include <cstdint>

namespace shunt {

/// From the leaves up.
enum class Closes : std::uint8_t {
  nothing,      ///< the same rank's next expert follows
  rank,         ///< the last term of its rank
  node,         ///< … and of its node, which is the token's own: no rounding
  remote_node,  ///< … and of its node, another one: its sum is rounded to the wire dtype
};

}  // namespace shunt
