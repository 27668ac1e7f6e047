// Ops that compute each element on its own, with broadcasting by name.
#include <algorithm>
#include <array>

#include "runtime/kernels.hpp"
#include "runtime/runs.hpp"
#include "runtime/vector_math.hpp"

namespace shunt::runtime::kernels {
namespace {

float* f32(std::byte* data) { return reinterpret_cast<float*>(data); }

/// result = vector(a, b), or element(a, b) where a run is broadcast or has gaps.
template <class Vector, class Element>
void combine_two(const View& a, const View& b, const View& result, const Vector& vector, const Element& element) {
  for_each_run<3>(result.axes, {&a, &b, &result}, [&](const Run<3>& run, const std::array<std::byte*, 3>& at) {
    if (run.is_contiguous()) return vector(f32(at[0]), f32(at[1]), f32(at[2]), static_cast<std::size_t>(run.count));
    for (std::int64_t i = 0; i < run.count; ++i)
      f32(at[2])[i * run.strides[2]] = element(f32(at[0])[i * run.strides[0]], f32(at[1])[i * run.strides[1]]);
  });
}

/// Views of the same type: runs are contiguous, or elements one by one.
template <std::size_t n, class Vector>
void combine_equal(const std::array<const View*, n>& views, const Vector& vector) {
  for_each_run<n>(views.back()->axes, views, [&](const Run<n>& run, const std::array<std::byte*, n>& at) {
    if (run.is_contiguous()) return vector(at, static_cast<std::size_t>(run.count));
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::array<std::byte*, n> element = at;
      for (std::size_t view = 0; view < n; ++view) element[view] += i * run.strides[view] * 4;
      vector(element, 1);
    }
  });
}

void copy(const View& from, const View& to) {
  for_each_run<2>(to.axes, {&from, &to}, [](const Run<2>& run, const std::array<std::byte*, 2>& at) {
    const auto [stride, to_stride] = run.strides;
    if (run.is_contiguous())
      std::copy_n(f32(at[0]), run.count, f32(at[1]));
    else
      for (std::int64_t i = 0; i < run.count; ++i) f32(at[1])[i * to_stride] = f32(at[0])[i * stride];
  });
}

Function function_of(const OpCall& call) {
  const std::string_view name = call.op.attributes.text("fn");
  if (name == "gelu") return Function::gelu;
  if (name == "silu") return Function::silu;
  return name == "relu" ? Function::relu : Function::sigmoid;
}

}  // namespace

void add(const OpCall& call) {
  const auto sum = [](float a, float b) { return a + b; };
  combine_two(call.in(0), call.in(1), call.out(), runtime::add, sum);
  for (std::size_t i = 2; i < call.operands.size(); ++i)
    combine_two(call.out(), call.in(i), call.out(), runtime::add, sum);
}

void mul(const OpCall& call) {
  combine_two(call.in(0), call.in(1), call.out(), runtime::multiply, [](float a, float b) { return a * b; });
}

void scale(const OpCall& call) {
  const auto by = static_cast<float>(call.real("by"));
  combine_equal<2>({&call.in(0), &call.out()},
                   [&](const auto& at, std::size_t count) { runtime::scale(f32(at[0]), by, f32(at[1]), count); });
}

void expand(const OpCall& call) { copy(call.in(0), call.out()); }

void reduce(const OpCall& call) {
  const View& x = call.in(0);
  clear(call.out());
  for_each_run<2>(x.axes, {&x, &call.out()}, [](const Run<2>& run, const std::array<std::byte*, 2>& at) {
    const auto [stride, sum_stride] = run.strides;
    if (run.is_contiguous())
      return runtime::add(f32(at[1]), f32(at[0]), f32(at[1]), static_cast<std::size_t>(run.count));
    if (stride == 1 && sum_stride == 0) {
      *f32(at[1]) += runtime::sum(f32(at[0]), static_cast<std::size_t>(run.count));
      return;
    }
    for (std::int64_t i = 0; i < run.count; ++i) f32(at[1])[i * sum_stride] += f32(at[0])[i * stride];
  });
}

void map(const OpCall& call) {
  combine_equal<2>({&call.in(0), &call.out()}, [f = function_of(call)](const auto& at, std::size_t count) {
    runtime::apply(f, f32(at[0]), f32(at[1]), count);
  });
}

void map_dx(const OpCall& call) {
  combine_equal<3>({&call.in(0), &call.in(1), &call.out()}, [f = function_of(call)](const auto& at, std::size_t count) {
    runtime::apply_derivative(f, f32(at[0]), f32(at[1]), f32(at[2]), count);
  });
}

void swiglu(const OpCall& call) {
  combine_equal<3>({&call.in(0), &call.in(1), &call.out()}, [](const auto& at, std::size_t count) {
    runtime::swiglu(f32(at[0]), f32(at[1]), f32(at[2]), count);
  });
}

void swiglu_dx(const OpCall& call) {
  combine_equal<5>({&call.in(0), &call.in(1), &call.in(2), &call.out(0), &call.out(1)},
                   [](const auto& at, std::size_t count) {
                     runtime::swiglu_dx(f32(at[0]), f32(at[1]), f32(at[2]), f32(at[3]), f32(at[4]), count);
                   });
}

}  // namespace shunt::runtime::kernels
