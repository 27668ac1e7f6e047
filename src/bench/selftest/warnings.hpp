// Warnings about properties of this machine that cause trouble, with remedies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/selftest/facts.hpp"

namespace shunt::bench::selftest {

struct RunSetup {
  std::int32_t ranks = 4;  ///< the largest number of ranks that is checked
  bool has_ucx = false;    ///< UCX can be used
  std::int32_t device_connections = 8;
};

/// Returns warnings of one line each, with the problem and a remedy.
std::vector<std::string> warnings_of(const MachineFacts& machine, const BusFacts& bus, const RunSetup& setup);

}  // namespace shunt::bench::selftest
