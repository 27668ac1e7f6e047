// Row-level helpers: select the format once per row, and write a row group by group.

#if defined(SHUNT_KERNELS_ROW_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SHUNT_KERNELS_ROW_INL_HPP
#undef SHUNT_KERNELS_ROW_INL_HPP
#else
#define SHUNT_KERNELS_ROW_INL_HPP
#endif

#include <algorithm>

#include "core/fail.hpp"
#include "kernels/group-inl.hpp"
#include "kernels/store.hpp"
#include "shunt/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace shunt {
namespace HWY_NAMESPACE {

// Calls body with the format of a floating-point row.
template <class Body>
auto with_format(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32: return body(F32Format());
    case DType::bf16: return body(Bf16Format());
    case DType::f16: return body(F16Format());
    case DType::fp8_e4m3: break;
  }
  fail(ErrorCode::internal, "a kernel for floating-point rows was given {}", to_string(dtype));
}

// A row has at most one partial group at either end, so this code is kept out of the loops.
template <class Format, class Produce>
HWY_NOINLINE void write_part(std::byte* row, std::size_t first, Part part, const Produce& produce) {
  store<Format>(produce(first, part), row, first, part);
}

// Writes the result of produce(first, Whole or Part) for each group of the row. Streamed rows are divided so that whole
// groups start at cache lines.
template <class Format, class Produce>
void write_row(std::byte* row, std::size_t hidden, Store how, const Produce& produce) {
  const bool past_cache = how == Store::streaming && bytes_to_line(row) % kElementBytes<Format> == 0;
  std::size_t first = past_cache ? std::min(bytes_to_line(row) / kElementBytes<Format>, hidden) : 0;
  if (first > 0) write_part<Format>(row, 0, Part{first}, produce);
  for (; first + kGroup <= hidden; first += kGroup) {
    const Group group = produce(first, Whole());
    if (past_cache) {
      store<Format, PastCache>(group, row, first);
    } else {
      store<Format, ThroughCache>(group, row, first);
    }
  }
  if (first < hidden) write_part<Format>(row, first, Part{hidden - first}, produce);
}

}  // namespace HWY_NAMESPACE
}  // namespace shunt
HWY_AFTER_NAMESPACE();

#endif
