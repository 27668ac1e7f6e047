// Runs the checks of all links, each in a child process and with its share of the time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/selftest/link.hpp"

namespace shunt::bench::selftest {

struct RunOptions {
  double seconds = 120;  ///< for all links; a hang adds at most one deadline
  std::uint64_t seed = 1;
  std::chrono::milliseconds deadline{20'000};  ///< of each operation
  std::function<void(const Verdict&)> on_verdict = nullptr;
  std::function<void(const std::string&)> on_progress = nullptr;  ///< receives a description of the running case
  Hooks hooks = {};
};

/// Returns one verdict per link and layout, in order. Call it while this process has one thread and has not used CUDA.
std::vector<Verdict> run_checks(const std::vector<Link>& links, const RunOptions& options);

}  // namespace shunt::bench::selftest
