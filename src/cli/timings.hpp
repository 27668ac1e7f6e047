// Times of the same steps on several ranks.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::cli {

/// Of at least one value.
[[nodiscard]] double median(std::vector<double> values);

[[nodiscard]] inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Milliseconds by name and repetition; filled on each rank, then merged to the slowest rank's.
class Timings {
 public:
  /// Collective: all ranks start together.
  template <class Work>
  void time(World& world, const std::string& name, const Work& work) {
    world.barrier();
    const double start = now_ms();
    work();
    samples_[name].push_back({0, now_ms() - start});
  }

  /// The same for work in which no rank waits for another: counts from the first rank's start to the last one's end, as
  /// ranks that share a core may take turns. Ranks of one host have one clock.
  template <class Work>
  void time_together(World& world, const std::string& name, const Work& work) {
    world.barrier();
    const double start = now_ms();
    work();
    samples_[name].push_back({start, now_ms()});
  }

  /// Of work that another clock has timed, the same for all ranks.
  void record(const std::string& name, double begin_ms, double end_ms) { samples_[name].push_back({begin_ms, end_ms}); }

  void clear() { samples_.clear(); }

  /// Collective: every sample becomes the largest over the ranks.
  void take_slowest(World& world);

  [[nodiscard]] double median(const std::string& name) const;

 private:
  struct Sample {
    double begin_ms;
    double end_ms;
  };

  std::map<std::string, std::vector<Sample>> samples_;
};

}  // namespace shunt::cli
