// Whether ranks are on one host.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "shunt/ids.hpp"

namespace shunt {

/// `hosts` is by rank.
inline bool are_on_one_host(std::span<const HostId> hosts) {
  return std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end();
}

}  // namespace shunt
