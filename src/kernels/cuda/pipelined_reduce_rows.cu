#include "kernels/cuda/pipelined_reduce_rows.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/sum_tree.cuh"

namespace shunt::device {
namespace {

/// As many warps as the registers for their sums permit.
constexpr int kWarps = 12;
/// A lane sums this many 16-byte vectors of a row at a time; together they are a warp's piece of the row.
constexpr int kVectors = 4;
constexpr int kPieceVectors = kVectors * 32;
/// Rows whose pieces are fetched together, as one stage. docs/performance.md has figures for other shapes.
constexpr int kRowsAtOnce = 2;
constexpr int kStageVectors = kRowsAtOnce * kPieceVectors;
/// Stages fetched ahead: over all warps, 144 KiB in flight per multiprocessor.
constexpr int kStages = 3;

template <class In>
constexpr int kWide = 16 / sizeof(In);

/// How rows are divided: a warp handles runs of adjacent pieces of a token.
struct Cut {
  std::uint32_t num_vectors;  // per row
  std::uint32_t num_pieces;
  std::uint32_t pieces_per_run;
  std::uint32_t num_runs;  // per row
  std::uint32_t num_jobs;  // runs of all tokens

  [[nodiscard]] __device__ std::uint32_t token(std::uint32_t job) const { return job / num_runs; }
  [[nodiscard]] __device__ std::uint32_t first_piece(std::uint32_t job) const {
    return job % num_runs * pieces_per_run;
  }
  [[nodiscard]] __device__ std::uint32_t end_piece(std::uint32_t job) const {
    return min(first_piece(job) + pieces_per_run, num_pieces);
  }
};

__device__ std::uint32_t first_job() { return blockIdx.x * kWarps + threadIdx.x / 32; }
__device__ std::uint32_t job_stride() { return gridDim.x * kWarps; }

/// What a warp needs of the rows of a run, in shared memory.
struct Run {
  struct Row {
    const uint4* begin;
    float weight;
    std::int32_t closes;
  };
  Row rows[kMostRowsOfWarp];
  std::int32_t num_rows;
};

/// The shared memory of one warp. While a stage of one run is summed, each later stage may belong to a further run.
struct Shared {
  uint4 stages[kStages][kStageVectors];
  Run runs[kStages + 1];
};

/// Fetches the stages in order. Each lane fetches what it sums itself, into slots that only it reads, so lanes don't
/// wait for each other.
class Fetcher {
 public:
  __device__ Fetcher(const ReduceRows& reduce, const Cut& cut, Shared& shared)
      : reduce_(reduce), cut_(cut), shared_(shared), job_(first_job()), next_(load(job_)) {
    if (job_ < cut_.num_jobs) start_run();
  }

  /// Issues one group of fetches, possibly empty. slots: this lane's first slot in the stage.
  __device__ void fetch(std::uint32_t slots) {
    if (job_ < cut_.num_jobs) {
      std::uint32_t offsets[kVectors];  // beyond the row's end, the last vector is fetched and not used
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        offsets[v] = min(piece_ * kPieceVectors + v * 32 + threadIdx.x % 32, cut_.num_vectors - 1);
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        if (first_ + i >= num_rows_) break;
        const uint4* const row = run_->rows[first_ + i].begin;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) fetch_once(slots + (i * kVectors + v) * 32 * 16, row + offsets[v]);
      }
      advance();
    }
    commit_fetches();
  }

 private:
  __device__ void advance() {
    first_ += kRowsAtOnce;
    if (first_ < num_rows_) return;
    first_ = 0;
    if (++piece_ < end_piece_) return;
    job_ += job_stride();
    run_ = run_ == shared_.runs + kStages ? shared_.runs : run_ + 1;
    if (job_ < cut_.num_jobs) start_run();
  }

  /// Loads term `lane` of the job's token; called one run ahead.
  [[nodiscard]] __device__ Term load(std::uint32_t job) const {
    const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
    if (job >= cut_.num_jobs || lane >= reduce_.topk) return Term{.rank = -1};
    return reduce_.terms[std::size_t(cut_.token(job)) * reduce_.topk + lane];
  }
  __device__ void start_run() {
    const Term term = next_;
    next_ = load(job_ + job_stride());
    piece_ = cut_.first_piece(job_);
    end_piece_ = cut_.end_piece(job_);
    num_rows_ = __popc(__ballot_sync(0xffff'ffffu, term.rank >= 0));
    __syncwarp();  // all lanes have finished with the run that this one replaces
    if (term.rank >= 0)
      run_->rows[threadIdx.x % 32] = {
          reinterpret_cast<const uint4*>(reduce_.rows[term.rank]) + std::int64_t{term.slot} * cut_.num_vectors,
          reduce_.weighted ? term.weight : 1.0f, term.closes};
    if (threadIdx.x % 32 == 0) run_->num_rows = num_rows_;
    __syncwarp();
  }

  const ReduceRows& reduce_;
  const Cut& cut_;
  Shared& shared_;
  std::uint32_t job_;
  Term next_;
  Run* run_ = shared_.runs;
  std::int32_t num_rows_ = 0;
  std::int32_t first_ = 0;
  std::uint32_t piece_ = 0;
  std::uint32_t end_piece_ = 0;
};

/// This lane's elements of a row.
template <class In>
struct Values {
  PackedElements<In, kWide<In>> vectors[kVectors];

  __device__ float operator[](int i) const { return vectors[i / kWide<In>].at(i % kWide<In>); }
};

template <class In>
struct Weighted {
  Values<In> values;
  float weight;

  __device__ float operator[](int i) const { return __fmul_rn(weight, values[i]); }
};

template <class In, class Out>
__global__ void __launch_bounds__(kWarps * 32, 1)
    pipelined_reduce_rows_kernel(const __grid_constant__ ReduceRows reduce, const __grid_constant__ Cut cut) {
  constexpr int kCount = kWide<In>;
  using Output = Elements<Out, kCount>;
  extern __shared__ uint4 memory[];
  if (*reduce.stop != 0) return;
  Shared& shared = reinterpret_cast<Shared*>(memory)[threadIdx.x / 32];
  const uint4* const own = shared.stages[0] + threadIdx.x % 32;
  const auto own_address = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
  Fetcher ahead(reduce, cut, shared);
  for (int stage = 0; stage < kStages; ++stage) ahead.fetch(own_address + stage * kStageVectors * 16);

  SkippingSumTree<kCount * kVectors> sums;
  int stage = 0;
  int run_index = 0;
  for (std::uint32_t job = first_job(); job < cut.num_jobs; job += job_stride()) {
    const Run& run = shared.runs[run_index];
    run_index = run_index < kStages ? run_index + 1 : 0;
    const std::int32_t num_rows = run.num_rows;
    auto* const result = reinterpret_cast<Output*>(reduce.result) + std::int64_t{cut.token(job)} * cut.num_vectors;
    const std::uint32_t end_piece = cut.end_piece(job);
    for (std::uint32_t piece = cut.first_piece(job); piece < end_piece; ++piece) {
      std::int32_t first = 0;
      do {
        wait_for_fetches<kStages - 1>();
        const std::int32_t count = min(num_rows - first, kRowsAtOnce);
#pragma unroll 1
        for (std::int32_t i = 0; i < count; ++i) {
          const Run::Row& row = run.rows[first + i];
          Values<In> values;
#pragma unroll
          for (int v = 0; v < kVectors; ++v)
            values.vectors[v].words = own[stage * kStageVectors + (i * kVectors + v) * 32];
          if (row.weight == 1.0f)  // always so in token_unique: a third fewer instructions for the same bits
            sums.add(values, row.closes, reduce.wire_dtype);
          else
            sums.add(Weighted<In>{values, row.weight}, row.closes, reduce.wire_dtype);
        }
        ahead.fetch(own_address + stage * kStageVectors * 16);
        stage = stage + 1 < kStages ? stage + 1 : 0;
        first += kRowsAtOnce;
      } while (first < num_rows);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const std::uint32_t vector = piece * kPieceVectors + v * 32 + threadIdx.x % 32;
        if (vector >= cut.num_vectors) continue;
        float total[kCount];
#pragma unroll
        for (int e = 0; e < kCount; ++e) total[e] = num_rows > 0 ? sums.tree.total.at[v * kCount + e] : 0.0f;
        result[vector] = narrow_all<Out>(total);
      }
      sums.tree.total.restart();  // the other levels are closed
    }
  }
}

/// Runs are long, because starting one costs a warp time, but numerous enough that warps get nearly equal numbers.
Cut cut_rows(const ReduceRows& reduce, std::size_t element_bytes, std::int32_t sms) {
  constexpr std::int64_t kRunsPerWarp = 8;
  Cut cut{};
  cut.num_vectors = static_cast<std::uint32_t>(static_cast<std::size_t>(reduce.hidden) * element_bytes / 16);
  cut.num_pieces = (cut.num_vectors + kPieceVectors - 1) / kPieceVectors;
  const std::int64_t wanted = (kRunsPerWarp * sms * kWarps + reduce.num_tokens - 1) / reduce.num_tokens;
  const auto runs = static_cast<std::uint32_t>(std::clamp<std::int64_t>(wanted, 1, cut.num_pieces));
  cut.pieces_per_run = (cut.num_pieces + runs - 1) / runs;
  cut.num_runs = (cut.num_pieces + cut.pieces_per_run - 1) / cut.pieces_per_run;
  cut.num_jobs = static_cast<std::uint32_t>(reduce.num_tokens) * cut.num_runs;
  return cut;
}

}  // namespace

bool fits_pipeline(const ReduceRows& reduce) {
  bool fits = false;
  for_element(reduce.row_dtype, [&](auto in) {
    for_element(reduce.result_dtype, [&](auto out) {
      constexpr int kCount = kWide<decltype(in)>;
      constexpr std::uintptr_t kAlignment = alignof(Elements<decltype(out), kCount>);
      fits = reduce.topk <= kMostRowsOfWarp && reduce.hidden % kCount == 0 &&
             reinterpret_cast<std::uintptr_t>(reduce.result) % kAlignment == 0;
    });
  });
  return fits;
}

void launch_pipelined(const ReduceRows& reduce, std::int32_t sms, cudaStream_t stream) {
  if (reduce.num_tokens == 0) return;
  for_element(reduce.row_dtype, [&](auto in) {
    for_element(reduce.result_dtype, [&](auto out) {
      const Cut cut = cut_rows(reduce, sizeof(in), sms);
      const std::int64_t useful = (cut.num_jobs + kWarps - 1) / kWarps;
      const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(sms, useful));
      pipelined_reduce_rows_kernel<decltype(in), decltype(out)>
          <<<blocks, kWarps * 32, kWarps * sizeof(Shared), stream>>>(reduce, cut);
    });
  });
  check(cudaGetLastError(), "start the pipelined sum of rows");
}

void preload_pipelined_reduce_rows() {
  if (!has_bulk_copies()) return;  // such devices don't have as much shared memory either
  for_every_pair_of_elements([](auto in, auto out) {
    check(cudaFuncSetAttribute(pipelined_reduce_rows_kernel<decltype(in), decltype(out)>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kWarps * sizeof(Shared)),
          "load the pipelined sum of rows");
  });
}

}  // namespace shunt::device
