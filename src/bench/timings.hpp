// Times of the same steps on several ranks, and progress messages.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::bench {

/// values: at least one.
[[nodiscard]] double median(std::vector<double> values);

[[nodiscard]] inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Milliseconds by name and repetition; recorded on each rank, then replaced by the slowest rank's.
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

  /// The same for work in which no rank waits for another: measures from the first rank's start to the last rank's end,
  /// because ranks that share a core may run one after the other. All ranks must share a clock, i.e. a machine.
  template <class Work>
  void time_together(World& world, const std::string& name, const Work& work) {
    world.barrier();
    const double start = now_ms();
    work();
    samples_[name].push_back({start, now_ms()});
  }

  /// Adds a time taken by another clock, which must be the same for all ranks.
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

/// The parts of a layer, in order.
enum class LayerPart : std::size_t { plan, dispatch, experts, combine };
inline constexpr std::size_t kLayerParts = 4;

/// The time of a part is the time when all ranks have ended it, minus the same time of the previous part. So the parts
/// add up to the layer, and waiting counts in the part where it happens.
class PartTimes {
 public:
  /// When each part of one repetition ended, in ms since this rank began it.
  using Ends = std::array<double, kLayerParts>;

  void add(const Ends& ends) { ends_.push_back(ends); }
  void clear() { ends_.clear(); }
  /// Collective: every end becomes the latest over the ranks.
  void take_slowest(World& world);

  /// Medians over repetitions, in ms.
  [[nodiscard]] double median_of(LayerPart part) const;
  [[nodiscard]] double median() const;

  /// For each repetition, the other layer's time over this layer's. Both must have equally many repetitions, measured
  /// in turn.
  [[nodiscard]] std::vector<double> speedups_over(const PartTimes& other) const;

 private:
  std::vector<Ends> ends_;
};

/// On rank 0, if enabled: replaces the progress line on the terminal.
void show_progress(const World& world, bool enabled, const std::string& text);

}  // namespace shunt::bench
