// What will hurt on this machine, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/selftest/bus_facts.hpp"
#include "bench/selftest/machine_facts.hpp"

namespace shunt::bench::selftest {

struct Circumstances {
  std::int32_t ranks = 4;  ///< the most that are checked with
  bool has_ucx = false;    ///< its library loads
  std::int32_t device_connections = 8;
};

/// Each says what is wrong and what to do, in one line.
std::vector<std::string> warnings_of(const MachineFacts& machine, const BusFacts& bus,
                                     const Circumstances& circumstances);

}  // namespace shunt::bench::selftest
