// Products over named dimensions equal sums in plain loops, whatever the layouts.
#include "runtime/contraction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>

namespace shunt::runtime::test {
namespace {

using graph::DimId;
using Sizes = std::map<DimId, std::int64_t>;

/// A tensor with random values, and possibly gaps between its rows as a part of a larger value has.
struct Filled {
  std::vector<float> memory;
  View view;
};

Filled filled(std::vector<DimId> dims, const Sizes& sizes, std::mt19937& random) {
  std::shuffle(dims.begin(), dims.end(), random);
  Filled filled;
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    filled.view.axes.insert(filled.view.axes.begin(), {dims[i], sizes.at(dims[i]), stride});
    stride *= sizes.at(dims[i]) + static_cast<std::int64_t>(random() % 3 == 0);  // a whole of which this is a part
  }
  std::uniform_real_distribution<float> values(-1, 1);
  filled.memory.resize(static_cast<std::size_t>(std::max<std::int64_t>(stride, 1)));
  for (float& value : filled.memory) value = values(random);
  filled.view.data = reinterpret_cast<std::byte*>(filled.memory.data());
  return filled;
}

/// Calls visit(index) for each element of the dimensions.
template <class Visit>
void for_each(const std::vector<DimId>& dims, const Sizes& sizes, const Visit& visit) {
  Sizes index;
  const auto nest = [&](const auto& self, std::size_t depth) -> void {
    if (depth == dims.size()) return visit(index);
    for (index[dims[depth]] = 0; index[dims[depth]] < sizes.at(dims[depth]); ++index[dims[depth]])
      self(self, depth + 1);
  };
  nest(nest, 0);
}

float& at(const View& view, const Sizes& index) {
  std::int64_t offset = 0;
  for (const Axis& axis : view.axes) offset += index.at(axis.dim) * axis.stride;
  return view.f32()[offset];
}

TEST(Contraction, EqualsSumsInPlainLoops) {
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    Sizes sizes;
    std::vector<DimId> each, rows, columns, summed;
    for (auto* group : {&each, &rows, &columns, &summed})
      for (auto left = random() % 3; left > 0; --left) {
        const DimId dim(sizes.size());
        group->push_back(dim);
        sizes[dim] = random() % 20 == 0 ? 0 : 1 + static_cast<std::int64_t>(random() % 7);
      }
    const auto joined = [](auto... groups) {
      std::vector<DimId> all;
      (all.insert(all.end(), groups.begin(), groups.end()), ...);
      return all;
    };
    const Filled a = filled(joined(each, rows, summed), sizes, random);
    const Filled b = filled(joined(each, columns, summed), sizes, random);
    Filled c = filled(joined(each, rows, columns), sizes, random);
    const std::vector<float> before = c.memory;
    contract(a.view, b.view, summed, c.view);

    std::size_t num_written = 0;
    for_each(joined(each, rows, columns), sizes, [&](Sizes& index) {
      double sum = 0, size = 0;
      for_each(summed, sizes, [&](const Sizes& inner) {
        Sizes all = index;
        for (const auto& [dim, i] : inner) all[dim] = i;
        const double product = static_cast<double>(at(a.view, all)) * at(b.view, all);
        sum += product;
        size += std::abs(product);
      });
      ASSERT_NEAR(at(c.view, index), sum, 1e-6 * size + 1e-12) << "seed " << seed;
      ++num_written;
    });
    // Gaps between rows belong to other parts.
    std::size_t num_equal = 0;
    for (std::size_t i = 0; i < before.size(); ++i) num_equal += before[i] == c.memory[i];
    ASSERT_GE(num_equal + num_written, before.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shunt::runtime::test
