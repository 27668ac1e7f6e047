#include "kernels/cuda/bulk_reduce_rows.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/bulk_geometry.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/tree.cuh"

namespace shunt::device {
namespace {

constexpr int kWarps = 16;
/// 16-byte vectors of a row that a lane sums at a time.
constexpr int kVectors = 2;
constexpr int kPieceBytes = kVectors * 32 * 16;
/// Pieces under way per warp, so that with all warps a multiprocessor has 192 KiB in flight.
constexpr int kSlots = 12;
constexpr std::size_t kSharedBytes = kWarps * kSlots * (kPieceBytes + sizeof(std::uint64_t));

template <class In>
constexpr int kWide = 16 / sizeof(In);

#if __CUDA_ARCH__ >= 900

constexpr unsigned kAllLanes = 0xffff'ffffu;

/// The jobs of a warp one after the other: a job is a piece of a token's result. Lane i holds the token's term i; those
/// of the next job are on their way.
class Jobs {
 public:
  __device__ Jobs(const ReduceRows& reduce, std::uint32_t num_pieces)
      : terms_(reduce.terms),
        topk_(reduce.topk),
        num_pieces_(num_pieces),
        num_jobs_(static_cast<std::uint32_t>(reduce.num_tokens) * num_pieces),
        job_(blockIdx.x * kWarps + threadIdx.x / 32) {
    next_ = load(job_);
    take_next();
  }

  [[nodiscard]] __device__ bool are_done() const { return job_ >= num_jobs_; }
  __device__ void advance() {
    job_ += stride();
    take_next();
  }

  [[nodiscard]] __device__ std::uint32_t token() const { return job_ / num_pieces_; }
  [[nodiscard]] __device__ std::uint32_t piece() const { return job_ % num_pieces_; }
  [[nodiscard]] __device__ const Term& term() const { return term_; }
  [[nodiscard]] __device__ std::int32_t num_terms() const { return num_terms_; }

 private:
  __device__ static std::uint32_t stride() { return gridDim.x * kWarps; }
  __device__ Term load(std::uint32_t job) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    return job < num_jobs_ && lane < topk_ ? terms_[std::size_t(job / num_pieces_) * topk_ + lane] : Term{.rank = -1};
  }
  __device__ void take_next() {
    term_ = next_;
    num_terms_ = __popc(__ballot_sync(kAllLanes, term_.rank >= 0));
    next_ = load(job_ + stride());
  }

  const Term* terms_;
  std::int32_t topk_;
  std::uint32_t num_pieces_;
  std::uint32_t num_jobs_;
  std::uint32_t job_;
  Term term_, next_;
  std::int32_t num_terms_ = 0;
};

/// Fetches pieces of rows in the order in which they are summed.
class Fetcher {
 public:
  __device__ Fetcher(const ReduceRows& reduce, std::size_t row_bytes, std::uint32_t num_pieces)
      : reduce_(reduce), row_bytes_(row_bytes), jobs_(reduce, num_pieces) {
    find_rows();
  }

  /// The next piece, if there is one. Called by all lanes.
  __device__ void fetch(const PieceRing& ring, std::int32_t slot) {
    while (term_ == jobs_.num_terms()) {
      if (jobs_.are_done()) return;
      jobs_.advance();
      find_rows();
    }
    const std::uint64_t from = __shfl_sync(kAllLanes, from_, term_++);
    if (threadIdx.x % 32 == 0) ring.fetch(slot, reinterpret_cast<const std::byte*>(from), bytes_);
  }

 private:
  __device__ void find_rows() {
    const std::size_t offset = jobs_.piece() * std::size_t{kPieceBytes};
    const Term& term = jobs_.term();
    bytes_ = static_cast<std::uint32_t>(min(row_bytes_ - offset, std::size_t{kPieceBytes}));
    if (term.rank >= 0)
      from_ = reinterpret_cast<std::uint64_t>(reduce_.rows[term.rank]) + term.slot * row_bytes_ + offset;
    term_ = 0;
  }

  const ReduceRows& reduce_;
  std::size_t row_bytes_;
  Jobs jobs_;
  std::uint64_t from_ = 0;  // of this lane's term
  std::uint32_t bytes_ = 0;
  std::int32_t term_ = 0;
};

#endif

template <class In, class Out>
__global__ void __launch_bounds__(kWarps * 32, 1)
    bulk_reduce_rows_kernel(const __grid_constant__ ReduceRows reduce, std::uint32_t num_pieces) {
#if __CUDA_ARCH__ >= 900
  constexpr int kCount = kWide<In>;
  extern __shared__ __align__(128) std::byte shared[];
  if (*reduce.stop != 0) return;
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const auto num_vectors = static_cast<std::int32_t>(reduce.hidden / kCount);
  auto* arrivals = reinterpret_cast<std::uint64_t*>(shared + kWarps * kSlots * kPieceBytes) + warp * kSlots;
  const PieceRing ring(shared + warp * kSlots * kPieceBytes, arrivals, kPieceBytes, kSlots);
  Fetcher ahead(reduce, std::size_t(num_vectors) * 16, num_pieces);
  for (std::int32_t slot = 0; slot < kSlots; ++slot) ahead.fetch(ring, slot);

  PieceRing::Place here;
  for (Jobs jobs(reduce, num_pieces); !jobs.are_done(); jobs.advance()) {
    Tree<kCount> trees[kVectors];
    for (std::int32_t term = 0; term < jobs.num_terms(); ++term) {
      ring.await(here);
      PackedElements<In, kCount> values[kVectors];
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        values[v].words = reinterpret_cast<const uint4*>(ring.at(here.slot))[v * 32 + lane];
      __syncwarp();  // all lanes have read the slot
      ahead.fetch(ring, here.slot);
      ring.advance(here);
      const float weight = reduce.weighted ? __shfl_sync(kAllLanes, jobs.term().weight, term) : 1.0f;
      const std::int32_t closes = __shfl_sync(kAllLanes, std::int32_t{jobs.term().closes}, term);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        float weighted[kCount];
#pragma unroll
        for (int e = 0; e < kCount; ++e) weighted[e] = __fmul_rn(weight, values[v].at(e));
        trees[v].add(weighted, closes, reduce.wire_dtype);
      }
    }
    using Output = Elements<Out, kCount>;
    auto* result = reinterpret_cast<Output*>(reduce.result) + std::int64_t{jobs.token()} * num_vectors;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto vector = static_cast<std::int32_t>(jobs.piece()) * kVectors * 32 + v * 32 + lane;
      if (vector >= num_vectors) continue;
      Output sum;
#pragma unroll
      for (int e = 0; e < kCount; ++e) sum.at[e] = narrow<Out>(jobs.num_terms() > 0 ? trees[v].total.at[e] : 0.0f);
      result[vector] = sum;
    }
  }
#endif
}

}  // namespace

bool fits_bulk_copies(const ReduceRows& reduce) {
  bool fits = false;
  for_element(reduce.row_dtype, [&](auto in) {
    for_element(reduce.result_dtype, [&](auto out) {
      constexpr int kCount = kWide<decltype(in)>;
      constexpr std::uintptr_t kAlignment = alignof(Elements<decltype(out), kCount>);
      fits = reduce.hidden % kCount == 0 && reinterpret_cast<std::uintptr_t>(reduce.result) % kAlignment == 0;
    });
  });
  return fits;
}

void launch_bulk(const ReduceRows& reduce, std::int32_t sms, cudaStream_t stream) {
  if (reduce.num_tokens == 0) return;
  for_element(reduce.row_dtype, [&](auto in) {
    for_element(reduce.result_dtype, [&](auto out) {
      const auto row_bytes = static_cast<std::size_t>(reduce.hidden) * sizeof(in);
      const auto num_pieces = static_cast<std::uint32_t>((row_bytes + kPieceBytes - 1) / kPieceBytes);
      const std::int64_t useful = (reduce.num_tokens * num_pieces + kWarps - 1) / kWarps;
      const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(sms, useful));
      bulk_reduce_rows_kernel<decltype(in), decltype(out)>
          <<<blocks, kWarps * 32, kSharedBytes, stream>>>(reduce, num_pieces);
    });
  });
  check(cudaGetLastError(), "start the bulk sum of rows");
}

void preload_bulk_reduce_rows() {
  if (!has_bulk_copies()) return;
  for_every_pair_of_elements([](auto in, auto out) {
    check(cudaFuncSetAttribute(bulk_reduce_rows_kernel<decltype(in), decltype(out)>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          "load the bulk sum of rows");
  });
}

}  // namespace shunt::device
