// Walks over named dimensions, for the interpreter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <vector>

#include "graph/interpreter.hpp"

namespace shunt::graph::test {

/// An iteration space: a set of dimensions with their sizes.
struct Space {
  std::vector<DimId> dims;
  std::vector<std::int64_t> sizes;

  void add(const Tensor& tensor) {
    for (std::size_t i = 0; i < tensor.dims.size(); ++i) add(tensor.dims[i], tensor.sizes[i]);
  }
  void add(DimId dim, std::int64_t size) {
    if (contains(dims, dim)) return;
    dims.push_back(dim);
    sizes.push_back(size);
  }
  [[nodiscard]] std::int64_t size(DimId dim) const {
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (dims[i] == dim) return sizes[i];
    throw std::logic_error("no such dimension");
  }
};

using Index = std::map<DimId, std::int64_t>;

inline void for_each(const Space& space, const std::function<void(Index&)>& visit) {
  Index index;
  const std::function<void(std::size_t)> walk = [&](std::size_t i) {
    if (i == space.dims.size()) return visit(index);
    for (std::int64_t v = 0; v < space.sizes[i]; ++v) {
      index[space.dims[i]] = v;
      walk(i + 1);
    }
  };
  walk(0);
}

inline std::size_t offset(const Tensor& tensor, const Index& index) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) at = at * tensor.sizes[i] + index.at(tensor.dims[i]);
  return static_cast<std::size_t>(at);
}

inline double at(const Tensor& tensor, const Index& index) { return tensor.data.at(offset(tensor, index)); }

}  // namespace shunt::graph::test
