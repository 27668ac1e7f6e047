// What `shunt info --measure` measures.
#pragma once

#include <cstdint>

namespace shunt::cli {

/// Rates over all ranks together; copies count bytes read plus bytes written.
struct MachineSpeed {
  double memcpy_gbps = 0;
  double streaming_gbps = 0;
  double write_gbps = 0;
  double read_gbps = 0;
  double barrier_us = 0;  ///< median over many, slowest rank
};

/// On ranks as processes of this host. Medians.
MachineSpeed measure_machine(std::int32_t num_ranks);

}  // namespace shunt::cli
