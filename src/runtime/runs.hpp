// Walks over the elements of several views at once, in runs.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/view.hpp"

namespace shunt::runtime {

/// The innermost dimension of a walk: `count` elements with a stride per view, in elements; 0 where a view does not
/// have the dimension.
template <std::size_t n>
struct Run {
  std::int64_t count;
  std::array<std::int64_t, n> strides;

  [[nodiscard]] bool is_contiguous() const {
    for (const std::int64_t stride : strides)
      if (stride != 1) return false;
    return true;
  }
};

/// A nest of loops over axes; neighbours in memory are one loop. All elements have four bytes.
template <std::size_t n>
class Walk {
 public:
  Walk(std::span<const Axis> axes, const std::array<const View*, n>& views) {
    for (std::size_t view = 0; view < n; ++view) data_[view] = views[view]->data;
    for (const Axis& axis : axes) {
      if (axis.size == 0) is_empty_ = true;
      if (axis.size == 1) continue;
      Run<n> next{axis.size, {}};
      for (std::size_t view = 0; view < n; ++view) next.strides[view] = views[view]->stride(axis.dim);
      add(next);
    }
    if (loops_.empty()) loops_.push_back({1, {}});
  }

  /// Calls visit(run, pointers) for each run; pointers are to the run's first elements.
  template <class Visit>
  void for_each(const Visit& visit) const {
    if (!is_empty_) nest(0, data_, visit);
  }

 private:
  static constexpr std::int64_t kElementBytes = 4;

  void add(const Run<n>& next) {
    if (!loops_.empty()) {
      Run<n>& last = loops_.back();
      bool is_neighbour = true;
      for (std::size_t view = 0; view < n; ++view)
        is_neighbour &= last.strides[view] == next.strides[view] * next.count;
      if (is_neighbour) {
        last = {last.count * next.count, next.strides};
        return;
      }
    }
    loops_.push_back(next);
  }

  template <class Visit>
  void nest(std::size_t depth, std::array<std::byte*, n> at, const Visit& visit) const {
    const Run<n>& loop = loops_[depth];
    if (depth + 1 == loops_.size()) return visit(loop, at);
    for (std::int64_t i = 0; i < loop.count; ++i) {
      nest(depth + 1, at, visit);
      for (std::size_t view = 0; view < n; ++view) at[view] += loop.strides[view] * kElementBytes;
    }
  }

  std::array<std::byte*, n> data_;
  std::vector<Run<n>> loops_;
  bool is_empty_ = false;
};

template <std::size_t n, class Visit>
void for_each_run(std::span<const Axis> axes, const std::array<const View*, n>& views, const Visit& visit) {
  Walk<n>(axes, views).for_each(visit);
}

/// Sets all elements to 0.
inline void clear(const View& view) {
  for_each_run<1>(view.axes, {&view}, [](const Run<1>& run, const std::array<std::byte*, 1>& at) {
    for (std::int64_t i = 0; i < run.count; ++i) reinterpret_cast<float*>(at[0])[i * run.strides[0]] = 0;
  });
}

}  // namespace shunt::runtime
