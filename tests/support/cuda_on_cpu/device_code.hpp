// Included before all else where the host's compiler compiles device code: the part of CUDA C++ that shunt's kernels
// use. translate.py has replaced what no header can define.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <math.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "fibers.hpp"
#include "launch.hpp"

// All threads of a block run on one thread of the system, and its blocks one after the other.
#undef __shared__
#define __shared__ static thread_local

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

#define threadIdx (::cuda_on_cpu::place.thread)
#define blockIdx (::cuda_on_cpu::place.block)
#define blockDim (::cuda_on_cpu::place.threads)
#define gridDim (::cuda_on_cpu::place.blocks)

// The runtime's templates that its header has for nvcc only.
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// Barriers and votes.
inline void __syncthreads() { (void)cuda_on_cpu::barrier(false); }
inline int __syncthreads_count(int vote) { return static_cast<int>(cuda_on_cpu::barrier(vote != 0).in_favour); }
inline int __syncthreads_or(int vote) { return cuda_on_cpu::barrier(vote != 0).in_favour > 0; }
inline int __syncthreads_and(int vote) {
  const cuda_on_cpu::Votes votes = cuda_on_cpu::barrier(vote != 0);
  return votes.in_favour == votes.all;
}
inline void __syncwarp(unsigned mask = 0xffff'ffffu) { (void)cuda_on_cpu::ballot(mask, false); }
inline unsigned __ballot_sync(unsigned mask, int vote) { return cuda_on_cpu::ballot(mask, vote != 0); }

// Exchanges within a warp, in groups of `width` lanes.
namespace cuda_on_cpu {

inline unsigned thread_of_block() {
  return place.thread.x + place.threads.x * (place.thread.y + place.threads.y * place.thread.z);
}
template <class T>
T exchange_as(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace cuda_on_cpu

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned first = cuda_on_cpu::thread_of_block() % 32 / width * width;
  return cuda_on_cpu::exchange_as(mask, value, first + (static_cast<unsigned>(source) & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const unsigned lane = cuda_on_cpu::thread_of_block() % 32;
  const unsigned source = lane ^ bits;
  return cuda_on_cpu::exchange_as(mask, value, source / width <= lane / width ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
  const unsigned lane = cuda_on_cpu::thread_of_block() % 32;
  return cuda_on_cpu::exchange_as(mask, value, lane % width + distance < width ? lane + distance : lane);
}

namespace cuda_on_cpu {

/// Adds up the values of all lanes in `mask`, by ascending lane.
template <class T, class Add>
T reduce(unsigned mask, T value, const Add& add) {
  mask = ballot(mask, true);  // those that exist
  bool has_first = false;
  T sum = value;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const T other = exchange_as(mask, value, lane);
    sum = has_first ? add(sum, other) : other;
    has_first = true;
  }
  return sum;
}

}  // namespace cuda_on_cpu

template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return cuda_on_cpu::reduce(mask, value, [](T a, T b) { return a + b; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return cuda_on_cpu::reduce(mask, value, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  mask = cuda_on_cpu::ballot(mask, true);  // those that exist
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1) != 0 && cuda_on_cpu::exchange_as(mask, value, lane) == value) same |= 1u << lane;
  return same;
}

// Atomics, between all kernels and the host.
template <class T, class U>
T atomicAdd(T* address, U value) {
  return __atomic_fetch_add(address, static_cast<T>(value), __ATOMIC_SEQ_CST);
}
template <class T, class U>
T atomicOr(T* address, U value) {
  return __atomic_fetch_or(address, static_cast<T>(value), __ATOMIC_SEQ_CST);
}
template <class T, class U>
T atomicExch(T* address, U value) {
  return __atomic_exchange_n(address, static_cast<T>(value), __ATOMIC_SEQ_CST);
}
template <class T, class U>
T atomicMax(T* address, U value) {
  T seen = __atomic_load_n(address, __ATOMIC_SEQ_CST);
  while (seen < static_cast<T>(value) && !__atomic_compare_exchange_n(address, &seen, static_cast<T>(value), true,
                                                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return seen;
}
template <class T, class U>
T atomicMin(T* address, U value) {
  T seen = __atomic_load_n(address, __ATOMIC_SEQ_CST);
  while (seen > static_cast<T>(value) && !__atomic_compare_exchange_n(address, &seen, static_cast<T>(value), true,
                                                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return seen;
}
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Arithmetic. Compiled with -ffp-contract=off, so that none of it is fused.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }

// As nvcc's, these take two types.
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// Loads and stores with hints for the cache.
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T, class U>
void __stcs(T* address, U value) {
  *address = value;
}

/// In kernels that use it only for instructions that shadow headers replace.
inline std::size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<std::size_t>(address); }
inline void __nanosleep(unsigned) { (void)cuda_on_cpu::nanoseconds(); }
