// What this machine offers, as far as hwloc sees it; without hwloc, what the C++ library knows.
#pragma once

#include <cstddef>
#include <string>

#include "shunt/language.hpp"

namespace shunt {

struct Machine {
  std::string hostname;
  std::string cpu;  ///< the model name, or empty where unknown
  int packages = 0;
  int cores = 0;  ///< physical cores this process may use
  int numa_nodes = 0;
  std::size_t last_level_cache_bytes = 0;  ///< of one cache; 0 where unknown
  int last_level_caches = 1;               ///< how many such caches there are
  std::size_t memory_bytes = 0;

  static Machine detect();
};

}  // namespace shunt
