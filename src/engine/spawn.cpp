// World::spawn: ranks as threads or as processes, and the one error that explains a failed run.
#include <exception>
#include <thread>
#include <vector>

#include "core/fail.hpp"
#include "core/start_thread.hpp"
#include "engine/world_impl.hpp"
#include "shunt/world.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/inproc/join.hpp"
#include "transport/shm/launch.hpp"

namespace shunt {

/// One rank's run of the body and its outcome.
class RankRun {
 public:
  using Body = std::function<void(World&)>;

  void operator()(const Body& body, Joined joined, const Environment& environment) {
    const auto transport = joined.transport;
    // Outside of the try block: a world destroyed by an exception would report it without its text.
    std::optional<World> world;
    try {
      world = World(make_world(std::move(joined), environment));
      body(*world);
    } catch (const Error& thrown) {
      fail_with(*transport, thrown.what(), thrown.code());
    } catch (const std::exception& thrown) {
      fail_with(*transport, thrown.what());
    } catch (...) {
      fail_with(*transport, "it threw something that is not a std::exception");
    }
  }

  /// What the body threw; null if it returned.
  [[nodiscard]] const std::exception_ptr& error() const { return error_; }
  /// The same for another process. A root failed first, not because of another rank.
  [[nodiscard]] const shm::Failure& failure() const { return failure_; }

 private:
  /// `code`: of an Error, whose text names the rank already.
  void fail_with(Transport& transport, const std::string& what, std::optional<ErrorCode> code = std::nullopt) {
    const RankId rank = transport.rank();
    const std::string text = fmt::format("rank {} failed: {}", rank, what);
    error_ = std::current_exception();
    transport.report(ErrorCode::peer_failed, rank, text);
    const auto fault = transport.fault();
    const bool is_root = fault && fault->culprit == rank;
    failure_ = {rank, code.value_or(ErrorCode::peer_failed), code ? what : text, is_root};
  }

  std::exception_ptr error_;
  shm::Failure failure_{};
};

namespace {

using Ends = std::vector<std::shared_ptr<Transport>>;

void spawn_threads(const std::function<Ends()>& join, const RankRun::Body& body, const Topology& topology,
                   const Environment& environment) {
  std::vector<RankRun> runs(static_cast<std::size_t>(topology.num_ranks()));
  {
    // If a thread can't be started, transports without a thread are destroyed first, so that ranks that wait for them
    // get an Error before the threads are joined.
    std::vector<std::jthread> threads;
    Ends ends = join();
    for (std::size_t rank = 0; rank < runs.size(); ++rank)
      threads.push_back(start_thread<std::jthread>(fmt::format("the thread of rank {}", rank),
                                                   [&, rank, end = std::move(ends[rank])] {
                                                     runs[rank](body, {end, topology, nullptr}, environment);
                                                   }));
  }

  for (const RankRun& run : runs)
    if (run.failure().is_root) std::rethrow_exception(run.error());
  for (const RankRun& run : runs)
    if (run.error()) std::rethrow_exception(run.error());
}

Joined join_processes(RankId rank, const std::string& job, const Topology& topology, const Environment& environment) {
  const auto ranks =
      bootstrap::join_rendezvous(bootstrap::on_one_machine(rank, topology.num_ranks(), job, environment.join));
  return join(*ranks, environment, topology);
}

std::optional<shm::Failure> run_process(RankId rank, const std::string& job, const std::function<void()>& joined,
                                        const RankRun::Body& body, const Topology& topology,
                                        const Environment& environment) {
  try {
    Joined world = join_processes(rank, job, topology, environment);
    const auto transport = world.transport;
    joined();
    RankRun run;
    run(body, std::move(world), environment);
    if (run.error()) return run.failure();
    if (const auto fault = transport->fault())
      return shm::Failure{.rank = rank, .code = fault->code, .text = fault->text, .is_handled = true};
    return std::nullopt;
  } catch (const Error& error) {
    return shm::Failure{rank, error.code(), error.what(), false};
  }
}

void spawn_processes(std::int32_t num_ranks, const RankRun::Body& body, const Topology& topology,
                     const Environment& environment) {
  const auto failures = shm::launch(
      num_ranks,
      [&](RankId rank, const std::string& job, const std::function<void()>& joined) {
        return run_process(rank, job, joined, body, topology, environment);
      },
      environment.liveness + std::chrono::seconds(2));
  for (const shm::Failure& failure : failures)
    if (failure.is_root) throw Error(failure.code, failure.text);
  if (!failures.empty()) throw Error(failures.front().code, failures.front().text);
}

}  // namespace

void World::spawn(std::int32_t num_ranks, const std::function<void(World&)>& body, const SpawnOptions& options) {
  if (num_ranks < 1 || num_ranks > Topology::kMaxRanksPerHost)
    fail(ErrorCode::invalid_argument, "can't spawn {} ranks, expected 1 to {}", num_ranks, Topology::kMaxRanksPerHost);
  const Topology topology = options.topology ? *options.topology : declared_nodes(options.environment, num_ranks);
  if (topology.num_ranks() != num_ranks)
    fail(ErrorCode::invalid_argument, "the topology has {} ranks, {} were to be spawned", topology.num_ranks(),
         num_ranks);
  const Environment environment = checked(options.environment);
  switch (options.kind) {
    case WorldKind::inproc: return spawn_threads([&] { return inproc::join(num_ranks); }, body, topology, environment);
    case WorldKind::islands:
      return spawn_threads([&] { return inproc::join_islands(topology); }, body, topology, environment);
    case WorldKind::shm: return spawn_processes(num_ranks, body, topology, environment);
  }
}

}  // namespace shunt
