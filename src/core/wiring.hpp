// The machine and the NIC of each rank.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt {

/// Indexed by rank; equal on all ranks.
struct Wiring {
  std::vector<HostId> hosts;
  std::vector<NicId> nics;  ///< the NIC by which a rank reaches other machines; numbered over all machines

  void add(HostId host, NicId nic) {
    hosts.push_back(host);
    nics.push_back(nic);
  }
  [[nodiscard]] bool are_near(RankId a, RankId b) const { return hosts[a.index()] == hosts[b.index()]; }
  [[nodiscard]] bool is_one_host() const {
    return std::adjacent_find(hosts.begin(), hosts.end(), std::not_equal_to<>()) == hosts.end();
  }
};

}  // namespace shunt
