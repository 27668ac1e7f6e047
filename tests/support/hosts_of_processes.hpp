// Several hosts on one: processes in IPC namespaces of their own, which makes them far to each other, joined over the
// loopback interface.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shunt/world.hpp"

namespace shunt::test {

/// Empty where this process may do it. network: "tcp" or "ucx".
std::string why_no_hosts(const std::string& network = "tcp");

/// Runs body(world) on so many ranks of each host, every rank a process. Throws the error of a rank that failed; a rank
/// that hangs fails after `limit`.
void run_on_hosts(std::int32_t num_hosts, std::int32_t ranks_per_host, const std::function<void(World&)>& body,
                  std::chrono::seconds limit, const std::string& network = "tcp");

}  // namespace shunt::test
