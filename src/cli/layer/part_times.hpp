// How long the parts of a layer take when ranks run them without barriers in between.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "shunt/world.hpp"

namespace shunt::cli {

enum class LayerPart : std::size_t { plan, dispatch, experts, combine };
inline constexpr std::size_t kLayerParts = 4;

/// A part's time is what it adds to the slowest rank's time: the moment when all ranks have ended it, minus the same of
/// the part before. So parts add up to the layer, and waiting counts where it happens.
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

  /// By repetition: how many times as long the other layer took as this one. Both were measured in turn, so they have
  /// equally many.
  [[nodiscard]] std::vector<double> speedups_over(const PartTimes& other) const;

 private:
  std::vector<Ends> ends_;
};

}  // namespace shunt::cli
