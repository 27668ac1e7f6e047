// Properties of this machine, from hwloc; without hwloc, from the C++ library.
#pragma once

#include <cstddef>
#include <string>

#include "shunt/language.hpp"

namespace shunt {

struct Machine {
  std::string hostname;
  std::string cpu;  ///< the model name; empty if unknown
  int packages = 0;
  int cores = 0;  ///< physical cores that this process may use
  int numa_nodes = 0;
  std::size_t last_level_cache_bytes = 0;  ///< size of one cache; 0 if unknown
  int last_level_caches = 1;               ///< number of such caches
  std::size_t memory_bytes = 0;

  static Machine detect();
};

}  // namespace shunt
