// Times of the same steps on several ranks.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::cli {

/// Milliseconds by name and repetition; filled on each rank, then merged to the slowest rank's.
class Timings {
 public:
  /// Collective: all ranks start together.
  template <class Work>
  void time(World& world, const std::string& name, const Work& work) {
    using Clock = std::chrono::steady_clock;
    world.barrier();
    const auto start = Clock::now();
    work();
    samples_[name].push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }

  void clear() { samples_.clear(); }

  /// Collective: every sample becomes the largest over the ranks.
  void take_slowest(World& world);

  [[nodiscard]] double median(const std::string& name) const;

 private:
  std::map<std::string, std::vector<double>> samples_;
};

}  // namespace shunt::cli
