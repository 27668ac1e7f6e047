// Bootstrap::from_environment: the endpoint and the token of ranks that a launcher started.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "core/fail.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/bootstrap/pmix_store.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/net/ports.hpp"

namespace shunt {
namespace bootstrap {
namespace {

constexpr const char* kKey = "shunt.rendezvous";
// Where the launcher itself uses MASTER_PORT, as torchrun's store does, rank 0 takes the first free port after it.
constexpr std::uint16_t kNumSparePorts = 16;

Environment::Network choose(Environment::Network network) {
  // Kept for the job's later worlds, whose rank 0 listens there too.
  static const Descriptor port = net::reserve_port(network.port_range);
  const auto addresses = net::own_addresses(network.interface);
  if (addresses.empty() && network.master_address.empty())
    fail(ErrorCode::invalid_argument, "rank 0 has no address that other machines reach{}{}; set MASTER_ADDR",
         network.interface.empty() ? "" : " at SHUNT_INTERFACE=", network.interface);
  if (network.master_address.empty()) network.master_address = fmt::format("{}", fmt::join(addresses, ","));
  if (network.master_port == 0) network.master_port = net::port_of(port.get());
  network.token = hex(draw_nonce());
  return network;
}

Environment::Network read_published(const Environment& environment) {
  const auto text =
      require_backend<PmixStore>("pmix").read_from_rank_0(kKey, std::chrono::steady_clock::now() + environment.join);
  if (!text)
    fail(
        ErrorCode::deadline,
        "rank {} waited {} ms in vain for rank 0 to publish its endpoint through PMIx; if MASTER_ADDR, MASTER_PORT and "
        "SHUNT_JOB_TOKEN are set for rank 0, set them for all ranks (mpirun -x)",
        environment.launch->rank, environment.join.count());
  Environment::Network published;
  std::istringstream words(*text);
  if (!(words >> published.master_address >> published.master_port >> published.token) || published.master_port < 1 ||
      published.master_port > 65535)
    fail(ErrorCode::mismatch, "rank 0 has published no valid endpoint");
  return published;
}

void expect_pmix(const Environment::Launch& launch) {
  const LoadedBackend* const pmix = launch.has_pmix ? &load_backend("pmix") : nullptr;
  if (pmix && pmix->functions) return;
  fail(ErrorCode::invalid_argument,
       "{} started {} of {} ranks on this machine: set MASTER_ADDR and MASTER_PORT to rank 0's address, and "
       "SHUNT_JOB_TOKEN to a secret, the same for all ranks ({})",
       launch.convention, launch.local_size, launch.size,
       pmix ? pmix->why_not : "the launcher does not offer PMIx, which would pass them on");
}

/// environment.network, complete: rank 0 chooses what no variable sets, its token at random, and publishes it through
/// the launcher. The same for every world of a job.
Environment::Network complete(const Environment& environment) {
  Environment::Network network = environment.network;
  if (!network.master_address.empty() && network.master_port != 0 && !network.token.empty()) return network;
  expect_pmix(*environment.launch);
  static const Environment::Network published = [&] {
    if (environment.launch->rank != 0) return read_published(environment);
    const Environment::Network chosen = choose(network);
    require_backend<PmixStore>("pmix").publish(
        kKey, fmt::format("{} {} {}", chosen.master_address, chosen.master_port, chosen.token));
    return chosen;
  }();
  if (network.master_address.empty()) network.master_address = published.master_address;
  if (network.master_port == 0) network.master_port = published.master_port;
  if (network.token.empty()) network.token = published.token;
  return network;
}

/// At a local socket. The user is part of its name: equal job names of two users are two jobs.
void join_on_one_machine(RendezvousOptions& options, const Environment& environment) {
  const Environment::Launch& launch = *environment.launch;
  const std::string job = fmt::format("{}/{}/{}/{}", geteuid(), launch.convention, launch.job, options.number);
  options.endpoint = on_one_machine(options.rank, options.size, job, options.limit).endpoint;
  options.token = job + "/" + environment.network.token;
}

void join_machines(RendezvousOptions& options, const Environment& environment) {
  const Environment::Network network = complete(environment);
  options.endpoint = {network.master_address, static_cast<std::uint16_t>(network.master_port), network.interface};
  options.token = network.token;
  if (!environment.launch->holds_master_port || network.has_own_port) return;
  // The job's name differs after an elastic restart, so ranks from before can't join.
  options.token += "/" + environment.launch->job;
  options.num_ports = static_cast<std::uint16_t>(std::min<int>(kNumSparePorts, 65535 - options.endpoint.port));
  if (options.num_ports == 0)
    fail(ErrorCode::invalid_argument, "no port is left after MASTER_PORT={}; set SHUNT_MASTER_PORT",
         network.master_port);
  ++options.endpoint.port;
}

}  // namespace
}  // namespace bootstrap

std::unique_ptr<Bootstrap> Bootstrap::from_environment(const Environment& environment) {
  // All ranks make their worlds in the same order, so the n-th rendezvous of each is the same world.
  static std::atomic<std::uint32_t> num_worlds{0};
  if (!environment.launch)
    return bootstrap::join_rendezvous({.rank = RankId(0), .size = 1, .token = "alone", .limit = environment.join});
  const Environment::Launch& launch = *environment.launch;
  bootstrap::RendezvousOptions options{
      .rank = RankId(launch.rank), .size = launch.size, .number = num_worlds++, .limit = environment.join};
  if (launch.local_size == launch.size)
    bootstrap::join_on_one_machine(options, environment);
  else
    bootstrap::join_machines(options, environment);
  return bootstrap::join_rendezvous(options);
}

}  // namespace shunt
