#include "support/hosts_of_processes.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "core/backend.hpp"
#include "support/child_process.hpp"
#include "transport/net/ports.hpp"

namespace shunt::test {
namespace {

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void join_and_run(std::int32_t rank, const std::function<void(World&)>& body) {
  set("RANK", std::to_string(rank));
  World world = World::from_environment();
  body(world);
}

/// The first error of several, once all have ended.
void wait_for_all(std::vector<ChildProcess>& children, std::chrono::seconds limit) {
  std::string error;
  for (ChildProcess& child : children) {
    const auto end = child.wait(limit);
    if (!error.empty() || (end && end->returned)) continue;
    error = !end ? "a process hangs" : end->signal != 0 ? fmt::format("signal {}", end->signal) : end->error;
  }
  if (!error.empty()) throw std::runtime_error(error);
}

void run_host(std::int32_t host, std::int32_t num_ranks, const std::function<void(World&)>& body,
              std::chrono::seconds limit) {
  if (unshare(CLONE_NEWIPC) != 0) throw std::runtime_error("no namespace to be had");
  std::vector<ChildProcess> ranks;
  for (std::int32_t i = 0; i < num_ranks; ++i)
    ranks.emplace_back([&, i] {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      join_and_run(host * num_ranks + i, body);
    });
  wait_for_all(ranks, limit);
}

}  // namespace

std::string why_no_hosts(const std::string& network) {
  if (network == "ucx" && !load_backend("ucx").functions) return load_backend("ucx").why_not;
  ChildProcess child([] {
    if (unshare(CLONE_NEWIPC) != 0) throw std::runtime_error("no namespace to be had");
  });
  const auto end = child.wait();
  return end && end->returned ? "" : "this process may not make IPC namespaces";
}

void run_on_hosts(std::int32_t num_hosts, std::int32_t ranks_per_host, const std::function<void(World&)>& body,
                  std::chrono::seconds limit, const std::string& network) {
  set("WORLD_SIZE", std::to_string(num_hosts * ranks_per_host));
  set("LOCAL_WORLD_SIZE", std::to_string(ranks_per_host));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(net::port_of(net::reserve_port("").get())));
  set("SHUNT_JOB_TOKEN", "hosts of processes");
  set("SHUNT_INTERFACE", "lo");
  std::vector<ChildProcess> hosts;
  for (std::int32_t host = 0; host < num_hosts; ++host)
    hosts.emplace_back([&, host] {
      set("SHUNT_NETWORK", network);
      run_host(host, ranks_per_host, body, limit);
    });
  wait_for_all(hosts, limit + std::chrono::seconds(2));
}

}  // namespace shunt::test
