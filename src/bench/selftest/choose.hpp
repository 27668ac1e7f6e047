// Which links are checked: those that were asked for and that this machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/selftest/bus_facts.hpp"
#include "bench/selftest/link.hpp"
#include "bench/selftest/run.hpp"

namespace shunt::bench::selftest {

struct Wanted {
  std::vector<Way> ways = {kWays.begin(), kWays.end()};
  std::vector<std::int32_t> rank_counts = {2, 4};
  std::string devices = "first";  ///< "none", "first", "all", or indices: "0,2"
};

struct Obstacles {
  std::string far_processes = {};  ///< why there can be none; empty: there can
  std::string ucx = {};            ///< why it does not load
};

struct Choice {
  std::vector<Link> links = {};
  std::vector<Verdict> without = {};  ///< skipped; or failed, where a GPU is there but can't be used
};

/// Links of host memory; then for each device that is wanted those with all ranks on it; then, of several, those with a
/// rank on each. Throws Error(invalid_argument) for a device that there is not, and for a word that says none.
[[nodiscard]] Choice choose_links(const Wanted& wanted, const BusFacts& bus, const Obstacles& obstacles);

}  // namespace shunt::bench::selftest
