// A set of ranks with its transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shunt/bootstrap.hpp"
#include "shunt/environment.hpp"
#include "shunt/ids.hpp"
#include "shunt/tensor.hpp"
#include "shunt/topology.hpp"

namespace shunt {

enum class WorldKind : std::uint8_t {
  inproc,   ///< ranks are threads of this process
  shm,      ///< ranks are processes of this host
  islands,  ///< ranks are threads of this process, and share memory within the topology's nodes only
};

std::string_view to_string(WorldKind kind);

struct Rebuilt;

struct WorldOptions {
  /// Which ranks form a node, the same on all ranks; by default what SHUNT_TOPOLOGY says. Without it every machine is a
  /// node, or, where all ranks are on one, SHUNT_VIRTUAL_NODES runs of ranks are.
  std::optional<Topology> topology = std::nullopt;
  Environment environment = Environment::read();
};

struct SpawnOptions {
  WorldKind kind = WorldKind::inproc;
  /// As in WorldOptions.
  std::optional<Topology> topology = std::nullopt;
  Environment environment = Environment::read();
};

/// One rank's end of a world. Move-only; one thread at a time may use a world and the engines made from it, which keep
/// what they need of it. When a rank fails, dies or stops,
/// every operation of every other rank ends with an Error that names it, and the world can only be left.
class World {
 public:
  struct Impl;

  /// Joins the ranks of a bootstrap, which is not used afterwards. Collective; blocks until all have come or
  /// SHUNT_JOIN_MS have passed. What fails on one rank is thrown on all.
  static World create(Bootstrap& bootstrap, const WorldOptions& options = {});

  /// The same for the job that the launcher describes (see Environment::Launch); without one, a world of one rank.
  static World from_environment();

  /// Runs body(world) on num_ranks new ranks and returns when all have returned. If some throw, throws the error of the
  /// rank that failed first: as it was thrown for threads, as Error for processes. Processes are forked, so call this
  /// before starting threads; once one has failed, the others have SHUNT_LIVENESS_MS and two seconds to end by
  /// themselves.
  static void spawn(std::int32_t num_ranks, const std::function<void(World&)>& body, const SpawnOptions& options = {});

  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  /// Leaves, once the engines and tickets made from it are gone too. Peers that still wait for this rank get an Error;
  /// if an exception is unwinding, at once.
  ~World();

  [[nodiscard]] RankId rank() const;
  [[nodiscard]] std::int32_t size() const;
  [[nodiscard]] const Topology& topology() const;

  /// Memory that peers can address, in which dispatch outputs and expert outputs need no copy. Not collective.
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols);

  /// What this rank has sent to other hosts so far: rows, sums and what planning exchanges, without headers.
  [[nodiscard]] std::uint64_t bytes_sent_to_hosts() const;

  /// Collective: returns once all ranks have called it.
  void barrier();

  /// Collective: every rank's bytes, by rank; lengths may differ. For small things: settings, timings;
  /// at most 256 MiB each.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);

  /// Collective: ranks that give the same colour form a new world, in the order of their ranks here. It shares this
  /// world's transport: a fault in one is a fault in both.
  [[nodiscard]] World split(std::int32_t colour);

  /// Collective over the ranks that are left after a fault: makes a new world of them, in the order of their ranks
  /// here, with fresh memory and connections that a lost rank knows nothing of, should it wake up. Waits up to
  /// SHUNT_JOIN_MS for ranks that live but have not called it. Needs more than half of the ranks, or a half with rank 0
  /// in it; throws Error(minority) to all others. Afterwards this world can only be left. For ranks that are processes,
  /// under a launcher that lets the others live when one dies.
  [[nodiscard]] Rebuilt rebuild();

  /// What this process holds for blocks that peers can address, and how much of it is in use: at most the recent peak
  /// of live_bytes() plus 64 MiB.
  [[nodiscard]] std::size_t committed_bytes() const;
  [[nodiscard]] std::size_t live_bytes() const;

  /// For engines.
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  friend class RankRun;
  explicit World(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
  int exceptions_at_birth_ = 0;
};

struct Rebuilt {
  World world;
  std::vector<RankId> survivors;  ///< what the new ranks were, ascending; ExpertMap::restricted_to takes them
};

}  // namespace shunt
