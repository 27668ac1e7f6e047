// Rows of a view: the elements along some dimensions, for each element of the others.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/runs.hpp"

namespace shunt::runtime {

/// The elements of a view along some dimensions, in layout order: in place where they are neighbours in memory, else in
/// a copy.
class Row {
 public:
  Row(const View& view, std::span<const graph::DimId> over) {
    for (const Axis& axis : view.axes)
      if (graph::contains(over, axis.dim)) axes_.push_back(axis);
    std::int64_t count = 1;
    for (std::size_t i = axes_.size(); i-- > 0; count *= axes_[i].size)
      is_in_place_ &= axes_[i].size == 1 || axes_[i].stride == count;
    if (!is_in_place_) copy_.resize(static_cast<std::size_t>(count));
    size_ = static_cast<std::size_t>(count);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] float* load(std::byte* at) {
    if (!is_in_place_) visit(at, [](float& copy, float& element) { copy = element; });
    return memory(at);
  }
  /// Where to write a row that store() then completes.
  [[nodiscard]] float* memory(std::byte* at) { return is_in_place_ ? reinterpret_cast<float*>(at) : copy_.data(); }
  void store(std::byte* at) {
    if (!is_in_place_) visit(at, [](float& copy, float& element) { element = copy; });
  }

 private:
  template <class Visit>
  void visit(std::byte* at, const Visit& each) {
    const View view{at, graph::Element::f32, axes_};
    std::size_t next = 0;
    for_each_run<1>(axes_, {&view}, [&](const Run<1>& run, const std::array<std::byte*, 1>& begin) {
      for (std::int64_t i = 0; i < run.count; ++i)
        each(copy_[next++], reinterpret_cast<float*>(begin[0])[i * run.strides[0]]);
    });
  }

  std::vector<Axis> axes_;
  std::vector<float> copy_;
  std::size_t size_ = 0;
  bool is_in_place_ = true;
};

/// Calls visit(index, pointers) for each element of the axes, with its index per axis.
template <std::size_t n, class Visit>
void for_each_index(const std::vector<Axis>& axes, const std::array<const View*, n>& views, const Visit& visit) {
  std::vector<std::int64_t> index(axes.size());
  std::array<std::byte*, n> data;
  for (std::size_t view = 0; view < n; ++view) data[view] = views[view]->data;
  const auto nest = [&](const auto& self, std::size_t depth, std::array<std::byte*, n> at) -> void {
    if (depth == axes.size()) return visit(index, at);
    for (std::int64_t i = 0; i < axes[depth].size; ++i) {
      index[depth] = i;
      self(self, depth + 1, at);
      for (std::size_t view = 0; view < n; ++view) at[view] += views[view]->stride(axes[depth].dim) * 4;
    }
  };
  nest(nest, 0, data);
}

/// The place of a dimension among axes; their number if it is not one of them.
inline std::size_t place_of(const std::vector<Axis>& axes, graph::DimId dim) {
  return static_cast<std::size_t>(std::ranges::find(axes, dim, &Axis::dim) - axes.begin());
}

}  // namespace shunt::runtime
