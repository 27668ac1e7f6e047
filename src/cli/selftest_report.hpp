// Output of a self-test, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/selftest/facts.hpp"
#include "bench/selftest/link.hpp"

namespace shunt::cli {

void print_machine(const bench::selftest::MachineFacts& machine);
/// Interfaces, RDMA devices, GPUs with their nearest network device, and which GPUs can access each other's memory.
void print_bus(const bench::selftest::BusFacts& bus);
/// Prints one line, and a second one with the reason of a failure.
void print_verdict(const bench::selftest::Verdict& verdict);

// JSON as described in docs/selftest.md. Unknown numbers and absent limits are null.
nlohmann::ordered_json machine_report(const bench::selftest::MachineFacts& machine);
/// "network", "rdma", "gpus", "gpus_on_bus" and "gpu_files".
nlohmann::ordered_json bus_report(const bench::selftest::BusFacts& bus);
nlohmann::ordered_json verdict_report(const std::vector<bench::selftest::Verdict>& verdicts);

}  // namespace shunt::cli
