// A world: a set of ranks with its transport.
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
#include "shunt/ticket.hpp"
#include "shunt/topology.hpp"

namespace shunt {

enum class WorldKind : std::uint8_t {
  inproc,   ///< ranks are threads of this process
  shm,      ///< ranks are processes of this machine
  islands,  ///< ranks are threads of this process, but share memory only within the topology's nodes
};

std::string_view to_string(WorldKind kind);

struct Rebuilt;

struct WorldOptions {
  /// Assignment of ranks to nodes, the same on all ranks; by default from SHUNT_TOPOLOGY. Without that, every machine
  /// is a node; if all ranks are on one machine, they form SHUNT_VIRTUAL_NODES nodes of consecutive ranks.
  std::optional<Topology> topology = std::nullopt;
  Environment environment = Environment::read();
};

struct SpawnOptions {
  WorldKind kind = WorldKind::inproc;
  /// As WorldOptions::topology.
  std::optional<Topology> topology = std::nullopt;
  Environment environment = Environment::read();
};

/// One rank's handle to a world. Move-only. A world and the engines made from it, which keep what they need of it, may
/// be used by one thread at a time. If a rank fails, dies or stops, every operation of every other rank ends with an
/// Error that names it; afterwards the world can only be destroyed or rebuilt.
class World {
 public:
  struct Impl;

  /// Joins the ranks of a bootstrap, which is not used afterwards. Collective; blocks until all ranks have joined or
  /// SHUNT_JOIN_MS have passed. If a step fails on one rank, all throw its Error; if the all-gather
  /// itself fails on one, the others throw Error(deadline), or Error(peer_lost) where the bootstrap reports ends.
  static World create(Bootstrap& bootstrap, const WorldOptions& options = {});

  /// Joins the job that the launcher describes (Environment::Launch); without a launcher, a world of one rank.
  static World from_environment();

  /// Runs body(world) on num_ranks new ranks and returns when all have returned. If some throw, throws the error of the
  /// rank that failed first: unchanged for threads, as Error for processes. Processes are forked, so call this before
  /// starting threads; once one has failed, the others have SHUNT_LIVENESS_MS and two seconds to end.
  static void spawn(std::int32_t num_ranks, const std::function<void(World&)>& body, const SpawnOptions& options = {});

  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  /// Leaves the world, once the engines and tickets made from it are gone too. Peers that still wait for this rank get
  /// an Error; if an exception is unwinding, they get it at once.
  ~World();

  [[nodiscard]] RankId rank() const;
  [[nodiscard]] std::int32_t size() const;
  [[nodiscard]] const Topology& topology() const;

  /// Memory that peers can address; dispatch outputs and expert outputs in it need no copy. Not collective.
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols);

  /// Bytes that this rank has sent to other machines so far: rows, sums and what planning exchanges, without headers.
  [[nodiscard]] std::uint64_t bytes_sent_to_hosts() const;

  /// Collective: returns once all ranks have called it.
  void barrier();

  /// Collective: returns every rank's bytes, by rank; lengths may differ. For small data such as settings and timings;
  /// at most 256 MiB per rank.
  [[nodiscard]] std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);

  /// Collective: adds up the tensors of all ranks, element by element, in place: all get the sum. f32 in host memory,
  /// contiguous, of the same size on all ranks; memory of allocate() saves two copies. The order of additions is that
  /// of combine (ranks of a node, then nodes, ascending), so all ranks have the same bits, whatever the transport.
  [[nodiscard]] Ticket<Tensor> all_reduce(const Tensor& tensor);

  /// Collective: ranks that pass the same colour form a new world, in the order of their ranks here. It shares this
  /// world's transport, so a fault in one is a fault in both.
  [[nodiscard]] World split(std::int32_t colour);

  /// Collective over the ranks that survive a fault: makes a new world of them, in the order of their ranks here, with
  /// fresh memory and connections, which a lost rank that resumes can't reach. Waits up to SHUNT_JOIN_MS for live ranks
  /// that have not called it. Needs more than half of the ranks, or half of them including rank 0; all others get
  /// Error(minority). Afterwards this world can only be destroyed. For ranks that are processes, under a launcher that
  /// does not kill the others when one dies.
  [[nodiscard]] Rebuilt rebuild();

  /// Memory that this process holds for blocks that peers can address, and the part in use. The first is at most the
  /// recent peak of live_bytes() plus 64 MiB.
  [[nodiscard]] std::size_t committed_bytes() const;
  [[nodiscard]] std::size_t live_bytes() const;

  /// For engines.
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  friend class RankRun;
  explicit World(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
  int exceptions_at_construction_ = 0;
};

struct Rebuilt {
  World world;
  std::vector<RankId> survivors;  ///< by new rank: its previous rank, ascending; ExpertMap::restricted_to takes them
};

}  // namespace shunt
