// A value of a graph in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fail.hpp"
#include "graph/type.hpp"

namespace shunt::runtime {

/// One dimension of a view. Sizes are those of this rank and step: rows dimensions differ from what the graph states.
struct Axis {
  graph::DimId dim;
  std::int64_t size;
  std::int64_t stride;  ///< in elements
};

/// Elements of f32 or i32 in layout order. Contiguous where it owns its memory; a part of a value keeps the strides of
/// the whole.
struct View {
  std::byte* data = nullptr;
  graph::Element element = graph::Element::f32;
  std::vector<Axis> axes;  ///< outermost first

  [[nodiscard]] float* f32() const { return reinterpret_cast<float*>(data); }
  [[nodiscard]] std::int32_t* i32() const { return reinterpret_cast<std::int32_t*>(data); }
  [[nodiscard]] const Axis* find(graph::DimId dim) const {
    const auto found = std::ranges::find(axes, dim, &Axis::dim);
    return found == axes.end() ? nullptr : &*found;
  }
  /// 0 along dimensions that it does not have.
  [[nodiscard]] std::int64_t stride(graph::DimId dim) const {
    const Axis* const axis = find(dim);
    return axis ? axis->stride : 0;
  }
  [[nodiscard]] std::int64_t count() const {
    std::int64_t product = 1;
    for (const Axis& axis : axes) product *= axis.size;
    return product;
  }
};

/// A contiguous view of the memory.
inline View contiguous(std::byte* data, graph::Element element, std::vector<Axis> axes) {
  std::int64_t stride = 1;
  for (std::size_t i = axes.size(); i-- > 0; stride *= axes[i].size) axes[i].stride = stride;
  return {data, element, std::move(axes)};
}

/// Elements `begin` to `begin` + `size` of a dimension; the view itself if it does not have it.
inline View slice(View view, graph::DimId dim, std::int64_t begin, std::int64_t size) {
  for (Axis& axis : view.axes) {
    if (axis.dim != dim) continue;
    view.data += begin * axis.stride * 4;
    axis.size = size;
  }
  return view;
}

/// One element of a dimension, without the dimension.
inline View element(const View& view, graph::DimId dim, std::int64_t index) {
  View chosen = slice(view, dim, index, 1);
  std::erase_if(chosen.axes, [&](const Axis& axis) { return axis.dim == dim; });
  return chosen;
}

}  // namespace shunt::runtime
