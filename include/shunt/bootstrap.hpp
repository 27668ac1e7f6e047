// How the ranks of a job exchange bytes before they have a world.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shunt/environment.hpp"
#include "shunt/ids.hpp"

namespace shunt {

/// What World::create needs: an all-gather of small byte strings among the job's ranks. It is used only while the world
/// is made. Derive from it to join ranks by other means; `shunt/mpi_bootstrap.hpp` does so for MPI.
class Bootstrap {
 public:
  using Bytes = std::vector<std::byte>;
  using AllGather = std::function<std::vector<Bytes>(std::span<const std::byte> mine, std::chrono::milliseconds limit)>;

  /// Upper bound on the bytes of one rank in an all-gather; World::create sends a few hundred.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  /// Uses what the launcher of this process offers (Environment::Launch); without a launcher, the job has one rank.
  /// Ranks of one machine find each other by the job's name, ranks of several machines at MASTER_ADDR and MASTER_PORT
  /// or by PMIx. Each rank proves that it has the job's token. Collective; blocks until all ranks have joined. Throws
  /// - Error(invalid_argument) that lists the variables to set,
  /// - Error(deadline) that names the missing ranks,
  /// - Error(mismatch) if ranks disagree about the job,
  /// - Error(peer_lost) if a rank joined and then ended,
  /// - Error(system).
  static std::unique_ptr<Bootstrap> from_environment(const Environment& environment = Environment::read());

  /// One bootstrap per rank, for ranks that are threads of this process.
  static std::vector<std::unique_ptr<Bootstrap>> threads(std::int32_t num_ranks);

  /// Wraps a function with the contract of all_gather, such as one over the store of a torch.distributed process group.
  static std::unique_ptr<Bootstrap> callback(RankId rank, std::int32_t size, AllGather all_gather);

  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual RankId rank() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;

  /// Collective; all ranks make their calls in the same order. Returns every rank's bytes, by rank; lengths may differ.
  /// Blocks. Throws Error(deadline) once the limit has passed, which names the missing ranks if they are known, and
  /// Error(peer_lost), which names a rank that has ended, on bootstraps that detect this earlier.
  virtual std::vector<Bytes> all_gather(std::span<const std::byte> mine, std::chrono::milliseconds limit) = 0;

  /// A secret that the job's ranks share and never send; empty if there is none. Without one, the world's connections
  /// are only as secret as what all_gather carries.
  [[nodiscard]] virtual std::string secret() const { return {}; }

  /// The numeric address at which other ranks reached this one, or could; empty if unknown.
  [[nodiscard]] virtual std::string address() const { return {}; }
};

}  // namespace shunt
