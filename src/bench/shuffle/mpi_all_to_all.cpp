#include "bench/shuffle/systems.hpp"

#include <cstdlib>
#include <numeric>
#include <vector>

#if SHUNT_HAVE_MPI
#include <mpi.h>
#endif

#include "core/fail.hpp"
#include "layer/aligned_buffer.hpp"

namespace shunt::bench {

#if SHUNT_HAVE_MPI

namespace {

class MpiAllToAll final : public AllToAll {
 public:
  explicit MpiAllToAll(const ShuffleConfig& config)
      : row_bytes_(static_cast<std::size_t>(config.hidden) * size_of(config.expert_dtype())) {
    // Funneled: shunt's own threads never call MPI.
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Type_contiguous(static_cast<int>(row_bytes_), MPI_BYTE, &row_);
    MPI_Type_commit(&row_);
  }
  ~MpiAllToAll() override {
    MPI_Type_free(&row_);
    MPI_Finalize();
  }

  [[nodiscard]] std::string name() const override { return "mpi_alltoallv"; }

  std::vector<std::int32_t> all_gather(std::span<const std::int32_t> mine) override {
    int num_ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
    std::vector<std::int32_t> all(mine.size() * static_cast<std::size_t>(num_ranks));
    const int count = static_cast<int>(mine.size());
    MPI_Allgather(mine.data(), count, MPI_INT32_T, all.data(), count, MPI_INT32_T, MPI_COMM_WORLD);
    return all;
  }

  Buffers prepare(std::span<const std::int32_t> send_counts, std::span<const std::int32_t> receive_counts) override {
    send_.set_counts(send_counts, row_bytes_);
    receive_.set_counts(receive_counts, row_bytes_);
    return {send_.memory.data(), receive_.memory.data()};
  }

  void forward() override { move(send_, receive_); }
  void backward() override { move(receive_, send_); }

 private:
  struct Side {
    std::vector<int> counts;
    std::vector<int> offsets;
    AlignedBuffer memory;

    void set_counts(std::span<const std::int32_t> per_rank, std::size_t row_bytes) {
      counts.assign(per_rank.begin(), per_rank.end());
      offsets.resize(counts.size());
      std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
      memory.reserve(static_cast<std::size_t>(offsets.back() + counts.back()) * row_bytes);
    }
  };

  void move(Side& from, Side& to) {
    MPI_Alltoallv(from.memory.data(), from.counts.data(), from.offsets.data(), row_, to.memory.data(), to.counts.data(),
                  to.offsets.data(), row_, MPI_COMM_WORLD);
  }

  std::size_t row_bytes_;
  MPI_Datatype row_ = MPI_DATATYPE_NULL;
  Side send_;
  Side receive_;
};

}  // namespace

std::string why_no_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") ? "" : "these ranks were not started by mpirun"; }

std::shared_ptr<AllToAll> make_mpi_all_to_all(const ShuffleConfig& config) {
  return std::make_shared<MpiAllToAll>(config);
}

#else

std::string why_no_mpi() { return "this build has no MPI (SHUNT_MPI)"; }

std::shared_ptr<AllToAll> make_mpi_all_to_all(const ShuffleConfig&) {
  fail(ErrorCode::unsupported, "{}", why_no_mpi());
}

#endif

}  // namespace shunt::bench
