#include "bench/timings.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/diagnostic.hpp"
#include "core/fail.hpp"

namespace shunt::bench {

void Timings::take_slowest(World& world) {
  for (auto& [name, mine] : samples_) {
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine)))) {
      std::vector<Sample> theirs(mine.size());
      std::memcpy(theirs.data(), bytes.data(), std::min(bytes.size(), theirs.size() * sizeof(Sample)));
      for (std::size_t i = 0; i < mine.size(); ++i)
        mine[i] = {std::min(mine[i].begin_ms, theirs[i].begin_ms), std::max(mine[i].end_ms, theirs[i].end_ms)};
    }
  }
}

double Timings::median(const std::string& name) const {
  std::vector<double> values;
  for (const Sample& sample : samples_.at(name)) values.push_back(sample.end_ms - sample.begin_ms);
  return bench::median(std::move(values));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

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
  return shunt::bench::median(std::move(times));
}

double PartTimes::median() const {
  std::vector<double> times;
  for (const Ends& ends : ends_) times.push_back(ends.back());
  return shunt::bench::median(std::move(times));
}

std::vector<double> PartTimes::speedups_over(const PartTimes& other) const {
  SHUNT_CHECK(other.ends_.size() == ends_.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ends_.size(); ++i) ratios.push_back(other.ends_[i].back() / ends_[i].back());
  return ratios;
}

void show_progress(const World& world, bool enabled, const std::string& text) {
  if (!enabled || world.rank().value != 0) return;
  print_diagnostic("\r\x1b[K{}", text);
}

}  // namespace shunt::bench
