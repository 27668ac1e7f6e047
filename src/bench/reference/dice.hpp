// Draws from a generator. Unlike the standard distributions they are the same with every standard library, so that a
// seed means the same case everywhere.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace shunt {

class Dice {
 public:
  explicit Dice(std::mt19937_64& generator) : generator_(generator) {}

  std::int32_t between(std::int32_t least, std::int32_t most) {
    return least + static_cast<std::int32_t>(generator_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int32_t n) { return between(1, n) == 1; }
  float weight() { return static_cast<float>(between(-1000, 1000)) / 512.0f; }

  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<std::int32_t>(values.size()) - 1)];
  }
  std::vector<std::int32_t> permutation(std::int32_t size) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(size));
    std::iota(values.begin(), values.end(), 0);
    for (std::int32_t i = size - 1; i > 0; --i)
      std::swap(values[static_cast<std::size_t>(i)], values[static_cast<std::size_t>(between(0, i))]);
    return values;
  }

 private:
  std::mt19937_64& generator_;
};

}  // namespace shunt
