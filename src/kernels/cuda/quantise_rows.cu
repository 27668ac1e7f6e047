#include <cuda_fp8.h>

#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/quantise_rows.hpp"

namespace shunt::device {
namespace {

constexpr unsigned kAllLanes = 0xffff'ffffu;
constexpr float kLargestE4m3 = 448.0f;
constexpr float kSmallestAmax = 0x1p-100f;
constexpr std::uint32_t kFourNans = 0x7f7f'7f7fu;

constexpr int kUnit = kQuantisedUnit;
/// Threads that share a scale: neighbours within a warp.
constexpr int kTeam = kScaleBlock / kUnit;

/// The elements of a thread, loaded kVector at a time; zero beyond the row's end.
template <class In, int kVector>
struct Unit {
  Elements<In, kVector> vectors[kUnit / kVector];

  __device__ Unit(const In* from, std::int64_t left) {
#pragma unroll
    for (int i = 0; i < kUnit / kVector; ++i)
      vectors[i] = i * kVector < left ? load_once(reinterpret_cast<const Elements<In, kVector>*>(from) + i)
                                      : Elements<In, kVector>{};
  }
  __device__ In at(int i) const { return vectors[i / kVector].at[i % kVector]; }
};

/// Bits that order like the magnitudes, with infinity and NaN on top.
template <class In>
__device__ std::uint32_t magnitude(In value) {
  if constexpr (sizeof(In) == 4)
    return __float_as_uint(value) & 0x7fff'ffffu;
  else
    return __builtin_bit_cast(unsigned short, value) & 0x7fffu;
}
template <class In>
__device__ float from_magnitude(std::uint32_t bits) {
  if constexpr (sizeof(In) == 4)
    return __uint_as_float(bits);
  else
    return widen(__builtin_bit_cast(In, static_cast<unsigned short>(bits)));
}

/// The largest magnitude of a team's elements; the result is the same on all of its threads.
template <class In, int kVector>
__device__ float largest_of_team(const Unit<In, kVector>& unit) {
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) largest = max(largest, magnitude(unit.at(i)));
#pragma unroll
  for (int half = kTeam / 2; half > 0; half /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, half));
  return from_magnitude<In>(largest);
}

__device__ std::uint32_t narrow_pair(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

/// A unit in e4m3, and its team's scale.
struct Quantised {
  std::uint32_t words[kUnit / 4];
  float scale;
};

template <class In, int kVector>
__device__ Quantised quantise(const Unit<In, kVector>& unit) {
  const float largest = largest_of_team(unit);
  const float amax = largest < kSmallestAmax ? kSmallestAmax : largest;  // keeps NaN
  const bool is_finite = isfinite(amax);
  const float factor = __fdiv_rn(kLargestE4m3, amax);
  Quantised result;
  result.scale = is_finite ? __fdiv_rn(amax, kLargestE4m3) : __uint_as_float(0x7fc0'0000u);
#pragma unroll
  for (int word = 0; word < kUnit / 4; ++word) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = __fmul_rn(widen(unit.at(4 * word + i)), factor);
    const std::uint32_t bits = narrow_pair(values[0], values[1]) | narrow_pair(values[2], values[3]) << 16;
    result.words[word] = is_finite ? bits : kFourNans;
  }
  return result;
}

template <int kVector>
__device__ Quantised copy_quantised(const Unit<std::uint8_t, kVector>& unit, float scale) {
  Quantised result;
  result.scale = scale;
#pragma unroll
  for (int word = 0; word < kUnit / 4; ++word) {
    result.words[word] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) result.words[word] |= std::uint32_t{unit.at(4 * word + i)} << (8 * i);
  }
  return result;
}

/// A quantised piece of a row, and the rows that receive it.
struct Piece {
  alignas(16) std::uint8_t elements[kQuantisedPiece];
  float scales[kQuantisedPiece / kScaleBlock];
  std::byte* rows[Routing::kMaxTopK];
  float* row_scales[Routing::kMaxTopK];
};

/// Each thread finds one of the token's rows; false on threads without one.
__device__ bool find_row(const QuantiseRows& quantise, std::int64_t token, std::int64_t first, Piece& piece) {
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  if (i >= quantise.topk) return false;
  const Term term = quantise.terms ? quantise.terms[token * quantise.topk + i]
                                   : Term{.rank = 0, .slot = static_cast<std::int32_t>(token)};
  if (term.rank < 0) return false;
  const auto per_row = static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(quantise.hidden)));
  piece.rows[i] = quantise.rows[term.rank] + term.slot * quantise.hidden + first;
  piece.row_scales[i] = reinterpret_cast<float*>(quantise.row_scales[term.rank]) + term.slot * per_row +
                        first / std::int64_t{kScaleBlock};
  return true;
}

template <class Word>
__device__ void store_elements(const Piece& piece, std::int32_t num_rows, std::int32_t count) {
  const auto* words = reinterpret_cast<const Word*>(piece.elements);
  const auto num_words = static_cast<std::int32_t>(count / sizeof(Word));
  for (std::int32_t row = 0; row < num_rows; ++row)
    for (std::int32_t word = threadIdx.x; word < num_words; word += blockDim.x)
      store_evict_first(reinterpret_cast<Word*>(piece.rows[row]) + word, words[word]);
}

/// One thread per row starts a bulk copy. Before the barrier that precedes this call, each writer of shared memory must
/// have called publish_to_copies().
__device__ void copy_elements(const Piece& piece, std::int32_t num_rows, std::int32_t count) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x >= num_rows) return;
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(piece.rows[threadIdx.x]),
               "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(piece.elements))), "r"(count)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  // Shared memory must live until it has been read. The writes complete with the kernel, as stores do.
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#else
  store_elements<uint4>(piece, num_rows, count);
#endif
}
__device__ void publish_to_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ void store_scales(const Piece& piece, std::int32_t num_rows, std::int32_t count) {
  const auto num_scales = static_cast<std::int32_t>(scales_per_row(static_cast<std::size_t>(count)));
  for (std::int32_t i = threadIdx.x; i < num_rows * num_scales; i += blockDim.x)
    __stcs(piece.row_scales[i / num_scales] + i % num_scales, piece.scales[i % num_scales]);
}

template <class In, int kVector>
__global__ void quantise_rows_kernel(const __grid_constant__ QuantiseRows quantise_rows) {
  __shared__ Piece piece;
  const std::uint32_t stop = *quantise_rows.stop;  // loaded concurrently with the elements
  const std::int64_t token = blockIdx.x;
  const std::int64_t first = std::int64_t{blockIdx.y} * kQuantisedPiece;
  const auto count = static_cast<std::int32_t>(min(quantise_rows.hidden - first, std::int64_t{kQuantisedPiece}));
  const auto at = static_cast<std::int32_t>(threadIdx.x) * kUnit;
  const auto* from = reinterpret_cast<const In*>(quantise_rows.x) + token * quantise_rows.hidden + first + at;
  const Unit<In, kVector> unit(from, count - at);
  if (stop != 0) return;
  const bool has_row = find_row(quantise_rows, token, first, piece);

  Quantised result;
  const std::int32_t scale = at / static_cast<std::int32_t>(kScaleBlock);
  if constexpr (std::is_same_v<In, std::uint8_t>) {
    const std::int64_t per_row = scales_per_row(static_cast<std::size_t>(quantise_rows.hidden));
    const std::int64_t first_scale = token * per_row + first / std::int64_t{kScaleBlock};
    result = copy_quantised(unit, at < count ? quantise_rows.scales[first_scale + scale] : 0.0f);
  } else {
    result = quantise(unit);
  }
  if (at < count) {
    reinterpret_cast<uint4*>(piece.elements)[threadIdx.x] = {result.words[0], result.words[1], result.words[2],
                                                             result.words[3]};
    if (threadIdx.x % kTeam == 0) piece.scales[scale] = result.scale;
  }
  publish_to_copies();
  const std::int32_t num_rows = __syncthreads_count(has_row);
  store_scales(piece, num_rows, count);
  if (quantise_rows.hidden % 16 == 0)
    copy_elements(piece, num_rows, count);
  else if (quantise_rows.hidden % 4 == 0)
    store_elements<std::uint32_t>(piece, num_rows, count);
  else
    store_elements<std::uint8_t>(piece, num_rows, count);
}

constexpr int kWide = 8;

/// Calls work(In{}) for the type of x.
template <class Work>
void for_source(DType dtype, const Work& work) {
  if (dtype == fp8_e4m3) return work(std::uint8_t{});
  for_element(dtype, work);
}

}  // namespace

void launch(const QuantiseRows& quantise, cudaStream_t stream) {
  if (quantise.num_tokens == 0) return;
  const auto [threads, pieces] = quantise_geometry(quantise.hidden);
  const dim3 blocks(static_cast<unsigned>(quantise.num_tokens), static_cast<unsigned>(pieces));
  const bool is_wide = quantise.hidden % kWide == 0 && reinterpret_cast<std::uintptr_t>(quantise.x) % 16 == 0;
  for_source(quantise.x_dtype, [&](auto in) {
    using In = decltype(in);
    if (is_wide)
      quantise_rows_kernel<In, kWide><<<blocks, threads, 0, stream>>>(quantise);
    else
      quantise_rows_kernel<In, 1><<<blocks, threads, 0, stream>>>(quantise);
  });
  check(cudaGetLastError(), "start to quantise rows");
}

void preload_quantise_rows() {
  for (const DType dtype : {f32, bf16, f16, fp8_e4m3})
    for_source(dtype, [](auto in) {
      cudaFuncAttributes attributes;
      check(cudaFuncGetAttributes(&attributes, quantise_rows_kernel<decltype(in), kWide>), "load the quantising");
      check(cudaFuncGetAttributes(&attributes, quantise_rows_kernel<decltype(in), 1>), "load the quantising");
    });
}

}  // namespace shunt::device
