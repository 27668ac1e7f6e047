// What people and programs read of a self-test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/selftest/bus_facts.hpp"
#include "bench/selftest/machine_facts.hpp"
#include "bench/selftest/run.hpp"

namespace shunt::cli {

void print_machine(const bench::selftest::MachineFacts& machine);
/// Interfaces, RDMA devices, GPUs with what is near them, and which GPUs reach each other's memory.
void print_bus(const bench::selftest::BusFacts& bus);
/// One line; two where there is a reason.
void print_verdict(const bench::selftest::Verdict& verdict);

// As docs/selftest.md words them. Numbers that are unknown, and limits that are none, are null.
nlohmann::ordered_json machine_report(const bench::selftest::MachineFacts& machine);
/// "network", "rdma", "gpus", "gpus_on_bus" and "gpu_files".
nlohmann::ordered_json bus_report(const bench::selftest::BusFacts& bus);
nlohmann::ordered_json verdict_report(const std::vector<bench::selftest::Verdict>& verdicts);

}  // namespace shunt::cli
