// Several simulated machines: processes in IPC namespaces of their own, so that they are far from each other, joined
// over the loopback interface.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shunt/world.hpp"

namespace shunt::test {

/// Why this process can't simulate machines; empty where it can. network: "tcp" or "ucx".
std::string why_no_hosts(const std::string& network = "tcp");

/// Runs body(world) on that many ranks of each machine, every rank a process. Throws the error of a rank that failed; a
/// rank that hangs fails after `limit`.
void run_on_hosts(std::int32_t num_hosts, std::int32_t ranks_per_host, const std::function<void(World&)>& body,
                  std::chrono::seconds limit, const std::string& network = "tcp");

}  // namespace shunt::test
