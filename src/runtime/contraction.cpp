#include "runtime/contraction.hpp"

#include <array>
#include <cstring>
#include <optional>

#include "layer/multiply.hpp"

namespace shunt::runtime {
namespace {

/// One dimension of a product, or several that are neighbours everywhere, with its strides in the three tensors.
struct Loop {
  std::int64_t size = 1;
  std::int64_t a = 0, b = 0, c = 0;
};

enum Group : std::uint8_t { kRows, kColumns, kSummed, kEach, kNumGroups };

/// Dimensions of a product by group, outermost first.
struct Loops {
  std::array<std::vector<Loop>, kNumGroups> groups;

  void add(Group group, const Loop& next) {
    if (next.size == 1) return;
    auto& loops = groups[group];
    if (!loops.empty()) {
      Loop& last = loops.back();
      const auto is_neighbour = [&](std::int64_t Loop::*stride) { return last.*stride == next.*stride * next.size; };
      if (is_neighbour(&Loop::a) && is_neighbour(&Loop::b) && is_neighbour(&Loop::c)) {
        last = {last.size * next.size, next.a, next.b, next.c};
        return;
      }
    }
    loops.push_back(next);
  }
};

Loops loops_of(const View& a, const View& b, std::span<const graph::DimId> over, const View& c) {
  Loops loops;
  for (const Axis& axis : c.axes) {
    const Loop run{axis.size, a.stride(axis.dim), b.stride(axis.dim), axis.stride};
    const bool in_a = a.find(axis.dim), in_b = b.find(axis.dim);
    SHUNT_CHECK(in_a || in_b);
    loops.add(in_a && in_b ? kEach : in_a ? kRows : kColumns, run);
  }
  for (const Axis& axis : a.axes) {
    if (c.find(axis.dim)) continue;
    SHUNT_CHECK(graph::contains(over, axis.dim) && b.find(axis.dim));
    loops.add(kSummed, {axis.size, axis.stride, b.stride(axis.dim), 0});
  }
  // A sum over nothing is 0: one product with an empty dimension, no loop around it.
  auto& summed = loops.groups[kSummed];
  if (const auto empty = std::ranges::find(summed, 0, &Loop::size); empty != summed.end()) summed = {Loop(*empty)};
  return loops;
}

/// The loops that are rows, columns and inner dimension of a matrix product.
struct Choice {
  Loop rows, columns, summed;

  [[nodiscard]] std::int64_t volume() const { return rows.size * columns.size * summed.size; }
  // A matrix is readable if it is contiguous along a dimension.
  [[nodiscard]] bool reads_a() const { return is_readable(rows.size, rows.a, summed.size, summed.a); }
  [[nodiscard]] bool reads_b() const { return is_readable(summed.size, summed.b, columns.size, columns.b); }
  [[nodiscard]] bool writes_c() const { return is_readable(rows.size, rows.c, columns.size, columns.c); }
  [[nodiscard]] int num_in_place() const { return reads_a() + reads_b() + writes_c(); }

 private:
  static bool is_readable(std::int64_t size, std::int64_t stride, std::int64_t other_size, std::int64_t other_stride) {
    return size == 1 || other_size == 1 || stride == 1 || other_stride == 1;
  }
};

/// Removes the best choice from the loops.
Choice take_best(Loops& loops) {
  std::optional<Choice> best;
  std::array<std::size_t, 3> taken{};
  const auto candidates = [&](Group group) { return std::max<std::size_t>(loops.groups[group].size(), 1); };
  const auto run = [&](Group group, std::size_t i) {
    return loops.groups[group].empty() ? Loop() : loops.groups[group][i];
  };
  for (std::size_t i = 0; i < candidates(kRows); ++i)
    for (std::size_t j = 0; j < candidates(kColumns); ++j)
      for (std::size_t k = 0; k < candidates(kSummed); ++k) {
        const Choice choice{run(kRows, i), run(kColumns, j), run(kSummed, k)};
        const auto rank = [](const Choice& each) { return std::pair(each.num_in_place(), each.volume()); };
        if (best && rank(*best) >= rank(choice)) continue;
        best = choice;
        taken = {i, j, k};
      }
  for (std::size_t group = 0; group < taken.size(); ++group)
    if (!loops.groups[group].empty())
      loops.groups[group].erase(loops.groups[group].begin() + static_cast<std::ptrdiff_t>(taken[group]));
  return *best;
}

/// A matrix in memory that the library can use: the tensor itself, or a copy.
class Operand {
 public:
  Operand(float* data, std::int64_t rows, std::int64_t row_stride, std::int64_t cols, std::int64_t col_stride,
          bool in_place)
      : original_{data, rows, cols, row_stride, col_stride}, matrix_(original_) {
    // A dimension of one element has whatever stride the library needs.
    if (rows == 1) matrix_.row_stride = col_stride == 1 || cols == 1 ? cols : 1;
    if (cols == 1) matrix_.col_stride = row_stride == 1 || rows == 1 ? rows : 1;
    if (rows == 1 && cols == 1) matrix_.row_stride = matrix_.col_stride = 1;
    if (in_place) return;
    copy_.resize(static_cast<std::size_t>(rows * cols));
    matrix_ = {copy_.data(), rows, cols, cols, 1};
  }
  void load() {
    if (copy_.empty()) return;
    for_each([](float& copy, const float& original) { copy = original; });
  }
  void store() {
    if (copy_.empty()) return;
    for_each([](const float& copy, float& original) { original = copy; });
  }
  [[nodiscard]] const Matrix& matrix() const { return matrix_; }

 private:
  template <class Visit>
  void for_each(const Visit& visit) {
    for (std::int64_t row = 0; row < original_.rows; ++row)
      for (std::int64_t col = 0; col < original_.cols; ++col)
        visit(copy_[static_cast<std::size_t>(row * original_.cols + col)],
              original_.data[row * original_.row_stride + col * original_.col_stride]);
  }

  Matrix original_;
  Matrix matrix_;
  std::vector<float> copy_;
};

/// Calls visit(a, b, c) with the offsets of each element of the loops.
template <class Visit>
void for_each(std::span<const Loop> loops, const Visit& visit, std::int64_t a = 0, std::int64_t b = 0,
              std::int64_t c = 0) {
  if (loops.empty()) return visit(a, b, c);
  const Loop& run = loops.front();
  for (std::int64_t i = 0; i < run.size; ++i)
    for_each(loops.subspan(1), visit, a + i * run.a, b + i * run.b, c + i * run.c);
}

}  // namespace

void contract(const View& a, const View& b, std::span<const graph::DimId> over, const View& c, Result result) {
  if (c.count() == 0) return;
  Loops loops = loops_of(a, b, over, c);
  const auto [rows, columns, summed] = take_best(loops);
  const Choice choice{rows, columns, summed};
  std::vector<Loop> outer;
  for (const Group group : {kEach, kRows, kColumns})
    outer.insert(outer.end(), loops.groups[group].begin(), loops.groups[group].end());
  for_each(outer, [&](std::int64_t in_a, std::int64_t in_b, std::int64_t in_c) {
    Operand target(c.f32() + in_c, choice.rows.size, choice.rows.c, choice.columns.size, choice.columns.c,
                   choice.writes_c());
    bool adds = result == Result::added_to;
    if (adds) target.load();
    for_each(loops.groups[kSummed], [&](std::int64_t further_a, std::int64_t further_b, std::int64_t) {
      Operand left(a.f32() + in_a + further_a, choice.rows.size, choice.rows.a, choice.summed.size, choice.summed.a,
                   choice.reads_a());
      Operand right(b.f32() + in_b + further_b, choice.summed.size, choice.summed.b, choice.columns.size,
                    choice.columns.b, choice.reads_b());
      left.load();
      right.load();
      multiply(left.matrix(), right.matrix(), target.matrix(), adds);
      adds = true;
    });
    target.store();
  });
}

}  // namespace shunt::runtime
