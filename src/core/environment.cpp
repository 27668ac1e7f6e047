#include "shunt/environment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/comma_list.hpp"
#include "core/fail.hpp"
#include "shunt/topology.hpp"

namespace shunt {
namespace {

const char* text(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::int64_t number(const char* name, std::int64_t fallback, std::int64_t least, std::int64_t most = INT32_MAX) {
  const char* value = text(name);
  if (!value) return fallback;
  std::int64_t parsed = 0;
  const char* end = value + std::strlen(value);
  const auto [stopped, error] = std::from_chars(value, end, parsed);
  if (error != std::errc{} || stopped != end || parsed < least || parsed > most)
    fail(ErrorCode::invalid_argument, "{}='{}': expected a whole number from {} to {}", name, value, least, most);
  return parsed;
}

std::chrono::milliseconds milliseconds(const char* name, std::chrono::milliseconds fallback) {
  return std::chrono::milliseconds(number(name, fallback.count(), 1));
}

struct Convention {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;             // nullptr: not available
  const char* local_rank;             // nullptr: not available
  std::array<const char*, 2> job_id;  // together they name the job; each may be nullptr
};

// The most explicit first: a launcher may itself run under another, as torchrun under srun.
constexpr Convention kConventions[] = {
    {"shunt", "SHUNT_RANK", "SHUNT_WORLD_SIZE", nullptr, nullptr, {"SHUNT_JOB", nullptr}},
    {"env", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK", {"MASTER_ADDR", "MASTER_PORT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", nullptr}},
    // Counts of the step, not of the allocation: a batch script is not a rank.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_LOCALID", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

// Set by torchrun.
constexpr const char* kElasticRun = "TORCHELASTIC_RUN_ID";
constexpr const char* kElasticRestart = "TORCHELASTIC_RESTART_COUNT";

std::string job_of(const Convention& convention) {
  std::string job;
  for (const char* name : convention.job_id) {
    if (!name) continue;
    const char* value = text(name);
    if (!value)
      fail(ErrorCode::invalid_argument,
           "{} and {} are set, but {} is not: it must name the job, so that ranks of two jobs don't join each other",
           convention.rank, convention.size, name);
    job += std::string(job.empty() ? "" : ":") + value;
  }
  for (const char* name : {kElasticRun, kElasticRestart})
    if (const char* value = text(name)) job += std::string(":") + value;
  return job;
}

std::int32_t int32(const char* name, std::int32_t fallback, std::int32_t least, std::int32_t most = INT32_MAX) {
  return static_cast<std::int32_t>(number(name, fallback, least, most));
}

std::optional<Environment::Launch> find_launch() {
  for (const Convention& convention : kConventions) {
    if (!text(convention.rank) || !text(convention.size)) continue;
    Environment::Launch launch;
    launch.convention = convention.name;
    launch.rank = int32(convention.rank, 0, 0);
    const bool is_for_one_host = launch.convention == "shunt";
    launch.size = int32(convention.size, 1, 1, is_for_one_host ? Topology::kMaxRanksPerHost : Topology::kMaxRanks);
    // A token means several machines, whose ranks only PyTorch's launchers count. The bootstrap finds them by itself.
    const std::int32_t on_this_host =
        launch.convention == "env" && launch.size > 1 && text("SHUNT_JOB_TOKEN") ? 1 : launch.size;
    launch.local_size = convention.local_size ? int32(convention.local_size, on_this_host, 1) : launch.size;
    launch.local_rank = convention.local_rank ? int32(convention.local_rank, 0, 0) : 0;
    if (launch.convention == "srun") launch.local_size /= int32("SLURM_STEP_NUM_NODES", 1, 1);
    if (launch.rank >= launch.size)
      fail(ErrorCode::invalid_argument, "{}={} does not fit {}={}", convention.rank, launch.rank, convention.size,
           launch.size);
    if (launch.size > 1) launch.job = job_of(convention);
    // A nested launcher's rank may have another number, or share PMIx's with others.
    launch.has_pmix = (launch.convention == "mpirun" || launch.convention == "srun") && text("PMIX_NAMESPACE") &&
                      int32("PMIX_RANK", -1, 0) == launch.rank;
    launch.holds_master_port = launch.convention == "env" && text(kElasticRun);
    return launch;
  }
  // Else ranks that miss a variable would each be a world of their own. RANK alone may mean something else.
  for (const Convention& convention : kConventions) {
    const bool is_meant = std::string_view(convention.name) == "shunt" ||
                          (std::string_view(convention.name) == "env" && text("MASTER_ADDR"));
    const bool has_rank = text(convention.rank), has_size = text(convention.size);
    if (is_meant && has_rank != has_size)
      fail(ErrorCode::invalid_argument, "{} is set, but {} is not", has_rank ? convention.rank : convention.size,
           has_rank ? convention.size : convention.rank);
  }
  return std::nullopt;
}

/// Removes the brackets of URLs, as in "[::1]", from a comma-separated list of addresses.
std::string without_brackets(const std::string& list) {
  std::vector<std::string> items = items_of(list);
  for (std::string& item : items)
    if (item.size() > 2 && item.front() == '[' && item.back() == ']') item = item.substr(1, item.size() - 2);
  return fmt::format("{}", fmt::join(items, ","));
}

/// Item n (modulo the length) of a comma-separated list.
std::string nth_of(const std::string& list, std::int32_t n) {
  const std::vector<std::string> items = items_of(list);
  return items.empty() ? "" : items[static_cast<std::size_t>(n) % items.size()];
}

Environment::Network read_network(std::int32_t local_rank) {
  const auto string = [](const char* name) { return std::string(text(name) ? text(name) : ""); };
  Environment::Network network;
  network.master_address = without_brackets(string("MASTER_ADDR"));
  network.has_own_port = text("SHUNT_MASTER_PORT") != nullptr;
  network.master_port = int32(network.has_own_port ? "SHUNT_MASTER_PORT" : "MASTER_PORT", 0, 1, 65535);
  network.token = string("SHUNT_JOB_TOKEN");
  network.interface = nth_of(without_brackets(string("SHUNT_INTERFACE")), local_rank);
  network.port_range = string("SHUNT_PORT_RANGE");
  network.kind = string("SHUNT_NETWORK");
  network.send_buffer_bytes = int32("SHUNT_SEND_BUFFER_BYTES", network.send_buffer_bytes, 0);
  network.link_bytes_per_s = number("SHUNT_LINK_RATE", network.link_bytes_per_s, 0, INT64_C(1) << 40);
  network.has_ucx_transports = text("UCX_TLS") != nullptr;
  network.devices = text("SHUNT_NET_DEVICES") ? string("SHUNT_NET_DEVICES") : network.interface;
  return network;
}

}  // namespace

Environment Environment::read() {
  Environment environment;
  environment.liveness = milliseconds("SHUNT_LIVENESS_MS", environment.liveness);
  environment.deadline = milliseconds("SHUNT_DEADLINE_MS", environment.deadline);
  environment.join = milliseconds("SHUNT_JOIN_MS", environment.join);
  environment.virtual_nodes = int32("SHUNT_VIRTUAL_NODES", environment.virtual_nodes, 1);
  if (const char* file = text("SHUNT_TOPOLOGY")) environment.topology_file = file;
  environment.slice_bytes = int32("SHUNT_SLICE_BYTES", environment.slice_bytes, 64);
  environment.ring_depth = int32("SHUNT_RING_DEPTH", environment.ring_depth, 0);
  environment.device_connections =
      int32("CUDA_DEVICE_MAX_CONNECTIONS", environment.device_connections, 1, kMostDeviceConnections);
  environment.launch = find_launch();
  environment.network = read_network(environment.launch ? environment.launch->local_rank : 0);
  return environment;
}

std::chrono::milliseconds Environment::checked(const char* name, std::chrono::milliseconds limit) {
  if (limit.count() <= 0) fail(ErrorCode::invalid_argument, "{}: {} ms, expected a positive time", name, limit.count());
  return std::min(limit, std::chrono::milliseconds(INT32_MAX));
}

}  // namespace shunt
