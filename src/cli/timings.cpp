#include "cli/timings.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace shunt::cli {

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
  return cli::median(std::move(values));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace shunt::cli
