// How ranks find each other before they are a world.
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

/// All that World::create needs of a job: an all-gather of small byte strings among its ranks. Used while the world is
/// made, and not afterwards. Derive from it to join ranks by other means; `shunt/mpi_bootstrap.hpp` does so for MPI.
class Bootstrap {
 public:
  using Bytes = std::vector<std::byte>;
  using AllGather = std::function<std::vector<Bytes>(std::span<const std::byte> mine, std::chrono::milliseconds limit)>;

  /// Of one rank's bytes; World::create sends a few hundred.
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  /// What the launcher of this process offers (Environment::Launch): ranks of one machine find each other by the job's
  /// name, ranks of several at MASTER_ADDR and MASTER_PORT, or by PMIx, and prove that they know the job's token.
  /// Without a launcher, one rank. Collective; blocks until all ranks have come. Throws Error(invalid_argument) that
  /// says which variables to set, Error(deadline) that names who is missing, Error(mismatch) for ranks that disagree
  /// about the job, Error(peer_lost) for a rank that came and then ended, Error(system).
  static std::unique_ptr<Bootstrap> from_environment(const Environment& environment = Environment::read());

  /// Ranks that are threads of this process, one bootstrap each.
  static std::vector<std::unique_ptr<Bootstrap>> threads(std::int32_t num_ranks);

  /// By a function that behaves as all_gather does, such as one over the store of a torch.distributed process group.
  static std::unique_ptr<Bootstrap> callback(RankId rank, std::int32_t size, AllGather all_gather);

  virtual ~Bootstrap() = default;

  [[nodiscard]] virtual RankId rank() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;

  /// Collective, in the same order on all ranks: everybody's bytes, by rank; lengths may differ. Blocks. Throws
  /// Error(deadline) once the limit has passed, naming who is missing where that is known, and Error(peer_lost) that
  /// names a rank which has ended, where that can be found out sooner.
  virtual std::vector<Bytes> all_gather(std::span<const std::byte> mine, std::chrono::milliseconds limit) = 0;

  /// Known to the job's ranks and never sent; empty where there is no such thing. The world's connections are then only
  /// as secret as what all_gather carries.
  [[nodiscard]] virtual std::string secret() const { return {}; }

  /// The address, as a number, at which other ranks have reached this one, or could; empty where that is not known.
  [[nodiscard]] virtual std::string address() const { return {}; }
};

}  // namespace shunt
