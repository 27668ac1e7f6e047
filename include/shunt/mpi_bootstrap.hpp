// Bootstrap over an MPI communicator. Users compile this header with their own MPI; the library itself needs none.
#pragma once

#include "shunt/language.hpp"

// After language.hpp, whose single error would otherwise be preceded by those of mpi.h.
#include <mpi.h>

#include <limits>
#include <string>
#include <thread>

#include "shunt/bootstrap.hpp"
#include "shunt/error.hpp"

namespace shunt {

/// Usage: `MpiBootstrap mpi(MPI_COMM_WORLD); auto world = World::create(mpi);`. Collective. Use it between MPI_Init and
/// MPI_Finalize, on a thread that may call MPI. The world has the communicator's ranks. MPI doesn't report a rank that
/// has ended; its launcher does. After a deadline the gather stays pending, and MPI_Finalize may wait for it.
class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(MPI_Comm communicator) {
    check(MPI_Comm_dup(communicator, &communicator_), "duplicate the communicator");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "return errors");
    check(MPI_Comm_rank(communicator_, &rank_), "get the rank");
    check(MPI_Comm_size(communicator_, &size_), "get the size");
  }
  MpiBootstrap(const MpiBootstrap&) = delete;
  MpiBootstrap& operator=(const MpiBootstrap&) = delete;
  ~MpiBootstrap() override {
    // A pending gather needs its buffers and its communicator; after a failure they are leaked.
    if (!is_broken_) MPI_Comm_free(&communicator_);
  }

  [[nodiscard]] RankId rank() const override { return RankId(static_cast<std::int32_t>(rank_)); }
  [[nodiscard]] std::int32_t size() const override { return size_; }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine, std::chrono::milliseconds limit) override {
    if (is_broken_) throw Error(ErrorCode::invalid_argument, "an all-gather of this MpiBootstrap has failed before");
    const auto deadline = std::chrono::steady_clock::now() + limit;
    auto buffers = std::make_unique<Buffers>();
    buffers->mine.assign(mine.begin(), mine.end());
    buffers->own_count = static_cast<int>(mine.size());
    buffers->counts.resize(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(&buffers->own_count, 1, MPI_INT, buffers->counts.data(), 1, MPI_INT, communicator_, &request),
          "gather sizes");
    wait(request, deadline, limit, buffers);
    std::int64_t total = 0;
    for (const int count : buffers->counts) {
      buffers->offsets.push_back(static_cast<int>(total));
      total += count;
    }
    if (total > std::numeric_limits<int>::max())
      throw Error(ErrorCode::invalid_argument, "MPI can't gather " + std::to_string(total) + " bytes");
    buffers->all.resize(static_cast<std::size_t>(total));
    check(MPI_Iallgatherv(buffers->mine.data(), buffers->own_count, MPI_BYTE, buffers->all.data(),
                          buffers->counts.data(), buffers->offsets.data(), MPI_BYTE, communicator_, &request),
          "gather");
    wait(request, deadline, limit, buffers);
    std::vector<Bytes> gathered;
    for (std::size_t rank = 0; rank < buffers->counts.size(); ++rank) {
      const auto begin = buffers->all.begin() + buffers->offsets[rank];
      gathered.emplace_back(begin, begin + buffers->counts[rank]);
    }
    return gathered;
  }

 private:
  struct Buffers {
    Bytes mine;
    int own_count = 0;
    std::vector<int> counts;
    std::vector<int> offsets;
    Bytes all;
  };

  static void check(int status, const char* what) {
    if (status != MPI_SUCCESS) throw Error(ErrorCode::system, std::string("MPI can't ") + what);
  }

  void wait(MPI_Request& request, std::chrono::steady_clock::time_point deadline, std::chrono::milliseconds limit,
            std::unique_ptr<Buffers>& buffers) {
    for (int is_done = 0; is_done == 0;) {
      const int status = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
      const bool is_late = is_done == 0 && std::chrono::steady_clock::now() >= deadline;
      if (status != MPI_SUCCESS || is_late) {
        is_broken_ = true;
        (void)buffers.release();  // MPI may still write there
        check(status, "test for completion");
        throw Error(ErrorCode::deadline, "rank " + std::to_string(rank_) + " waited " + std::to_string(limit.count()) +
                                             " ms in vain for other ranks of the communicator");
      }
      if (is_done == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = -1;
  int size_ = 0;
  bool is_broken_ = false;
};

}  // namespace shunt
