// Kernels that the protocol's tests launch.
#pragma once

#include <cstdint>

#include "transport/cuda/control.hpp"

namespace shunt::test {

struct ProtocolCase {
  std::uint32_t rounds;
  std::uint32_t words;  ///< that block 0 writes into block 1's memory per round
  std::uint64_t deadline_ms;
  std::uint32_t sender_stops_at = 0xffff'ffffu;  ///< after so many barriers
  std::uint64_t sender_tag = 1;                  ///< the receiver's is 1
  bool in_parts = false;                         ///< the receiver says that it has come, then waits
  bool sender_is_lost = false;                   ///< so the host says, from the beginning
};

struct ProtocolResult {
  std::uint64_t wrong_words;
  device::FaultRecord fault;  ///< the receiver's
  bool waits;                 ///< a block has told the host that it waits
};

/// Block 0 sends, block 1 receives: each round words that only that round has, through memory that is used again.
ProtocolResult send_between_blocks(const ProtocolCase& what);

}  // namespace shunt::test
