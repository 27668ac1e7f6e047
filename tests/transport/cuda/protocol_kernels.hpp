// Kernels that the protocol's tests launch.
#pragma once

#include <cstdint>

#include "transport/cuda/control.hpp"

namespace shunt::test {

struct ProtocolCase {
  std::uint32_t rounds;
  std::uint32_t words;  ///< that block 0 writes into block 1's memory per round
  bool in_parts;        ///< the receiver says that it has come, then waits
};

struct ProtocolResult {
  std::uint64_t wrong_words;
  device::FaultRecord fault;  ///< the receiver's
};

/// Block 0 sends, block 1 receives: each round words that only that round has, through memory that is used again.
ProtocolResult send_between_blocks(const ProtocolCase& what);

}  // namespace shunt::test
