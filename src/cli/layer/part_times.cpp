#include "cli/layer/part_times.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "cli/timings.hpp"
#include "core/fail.hpp"

namespace shunt::cli {

void PartTimes::take_slowest(World& world) {
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(ends_)))) {
    SHUNT_CHECK(bytes.size() == ends_.size() * sizeof(Ends));
    std::vector<Ends> theirs(ends_.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < ends_.size(); ++i)
      for (std::size_t part = 0; part < kLayerParts; ++part) ends_[i][part] = std::max(ends_[i][part], theirs[i][part]);
  }
}

double PartTimes::median_of(LayerPart part) const {
  const auto index = static_cast<std::size_t>(part);
  std::vector<double> times;
  for (const Ends& ends : ends_) times.push_back(index == 0 ? ends[0] : ends[index] - ends[index - 1]);
  return shunt::cli::median(std::move(times));
}

double PartTimes::median() const {
  std::vector<double> times;
  for (const Ends& ends : ends_) times.push_back(ends.back());
  return shunt::cli::median(std::move(times));
}

std::vector<double> PartTimes::speedups_over(const PartTimes& other) const {
  SHUNT_CHECK(other.ends_.size() == ends_.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ends_.size(); ++i) ratios.push_back(other.ends_[i].back() / ends_[i].back());
  return ratios;
}

}  // namespace shunt::cli
