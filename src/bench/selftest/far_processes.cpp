#include "bench/selftest/far_processes.hpp"

#include <sched.h>

#include "bench/selftest/apart.hpp"
#include "core/fail.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/shm/launch.hpp"

namespace shunt::bench::selftest {
namespace {

using namespace std::chrono_literals;

/// Ranks of one machine share an IPC namespace. Whoever may not make one may do so as the root of a user namespace,
/// where the system allows these.
void leave_machine() {
  if (unshare(CLONE_NEWIPC) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWIPC) == 0) return;
  fail_errno("this process may not make an IPC namespace (a container may lack CAP_SYS_ADMIN)");
}

void run_rank(RankId rank, const std::string& job, const Topology& topology, const Environment& environment,
              const std::function<void(World&)>& body) {
  bootstrap::Rendezvous bootstrap(bootstrap::on_one_machine(rank, topology.num_ranks(), job, environment.join));
  World world = World::create(bootstrap, {.topology = topology, .environment = environment});
  body(world);
}

/// An error that another one brought about explains less.
bool is_consequence(ErrorCode code) { return code == ErrorCode::peer_failed || code == ErrorCode::peer_lost; }

shm::Failure failure_of(RankId rank, const Error& error) {
  return {rank, error.code(), error.what(), !is_consequence(error.code())};
}

/// Of several, the one that explains the others.
const shm::Failure& root_of(const std::vector<shm::Failure>& failures) {
  for (const shm::Failure& failure : failures)
    if (failure.is_root) return failure;
  return failures.front();
}

}  // namespace

std::string why_no_far_processes() {
  return run_apart([](const Say&) { leave_machine(); }, [](const std::string&) {},
                   std::chrono::steady_clock::now() + 10s);
}

void spawn_far_processes(const Topology& topology, const Environment& environment,
                         const std::function<void(World&)>& body) {
  const std::chrono::milliseconds grace = environment.liveness + 2s;
  const auto run_machine = [&](RankId machine, const std::string& job,
                               const std::function<void()>& joined) -> std::optional<shm::Failure> {
    leave_machine();
    joined();  // what its ranks wait for is up to them
    const auto ranks = topology.ranks(NodeId(machine.value));
    const auto run = [&](RankId local, const std::string&,
                         const std::function<void()>& has_joined) -> std::optional<shm::Failure> {
      const RankId rank = ranks[local.index()];
      try {
        has_joined();
        run_rank(rank, job, topology, environment, body);
        return std::nullopt;
      } catch (const Error& error) {
        return failure_of(rank, error);
      }
    };
    const auto failures = shm::launch(static_cast<std::int32_t>(ranks.size()), run, grace);
    if (failures.empty()) return std::nullopt;
    return root_of(failures);
  };
  const auto failures = shm::launch(topology.num_nodes(), run_machine, grace);
  if (failures.empty()) return;
  const shm::Failure& root = root_of(failures);
  throw Error(root.code, root.text);
}

}  // namespace shunt::bench::selftest
