#include "bench/shuffle/systems.hpp"

#include <cstdlib>
#include <numeric>
#include <vector>

#if SHUNT_HAVE_MPI
#include <mpi.h>
#endif

#include "core/fail.hpp"
#include "core/wiring.hpp"
#include "layer/aligned_buffer.hpp"
#include "plan/plan_data.hpp"

namespace shunt::bench {

void verify(const std::string& name, System& system, const Verifier& verifier) {
  system.plan();
  const ConstTensor rows = system.dispatch();
  verifier.check_dispatch(name, {rows, rows.rows, system.scales(), system.row_counts()});
  verifier.fill_expert_out(system.expert_out());
  verifier.check_combine(name, system.combine());
}

ShuntSystem::ShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
                         Forwarders forwarders)
    : config_(config),
      routing_(workload.routing(world.rank().index()).view(config.topk)),
      tokens_(tokens),
      map_(config.map()),
      forwarders_(forwarders),
      engine_(world, {.hidden = config.hidden, .dtype = config.dtype}) {}

void ShuntSystem::plan() {
  PlanOptions options;
  options.layout = config_.layout;
  options.forwarders = forwarders_;
  options.max_tokens = max_tokens();
  plan_ = engine_.plan(routing_, map_, options);
}

// Releases the old rows first, so that the pool reuses their pages.
ConstTensor ShuntSystem::dispatch() {
  rows_ = {};
  rows_ = engine_.dispatch(plan_, tokens_).wait();
  return rows_.data;
}

std::vector<std::int64_t> ShuntSystem::row_counts() const {
  if (config_.layout == Layout::padded) return {rows_.source_counts.begin(), rows_.source_counts.end()};
  return {plan_.expert_counts().begin(), plan_.expert_counts().end()};
}

Tensor ShuntSystem::expert_out() {
  if (!expert_out_.data || expert_out_.rows != plan_.num_rows()) expert_out_ = engine_.expert_out(plan_);
  return expert_out_;
}

bool ShuntSystem::spans_machines() const { return !plan_.data()->wiring.is_one_host(); }

std::vector<std::uint64_t> ShuntSystem::bytes_to_far() const {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(config_.ranks));
  for (const OutFlow& flow : plan_.data()->out_flows)
    bytes[flow.forwarder.index()] = flow.tokens.size() * config_.row_bytes();
  return bytes;
}

ConstTensor ShuntSystem::combine() {
  result_ = {};
  result_ = engine_.combine(plan_, expert_out_).wait();
  return result_;
}

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
