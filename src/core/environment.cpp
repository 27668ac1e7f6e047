#include "shunt/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/fail.hpp"

namespace shunt {
namespace {

const char* text(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::int64_t number(const char* name, std::int64_t fallback, std::int64_t least) {
  const char* value = text(name);
  if (!value) return fallback;
  std::int64_t parsed = 0;
  const char* end = value + std::strlen(value);
  const auto [stopped, error] = std::from_chars(value, end, parsed);
  if (error != std::errc{} || stopped != end || parsed < least || parsed > INT32_MAX)
    fail(ErrorCode::invalid_argument, "{}='{}': expected a whole number of at least {}", name, value, least);
  return parsed;
}

std::chrono::milliseconds milliseconds(const char* name, std::chrono::milliseconds fallback) {
  return std::chrono::milliseconds(number(name, fallback.count(), 1));
}

struct Convention {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_size;  // nullptr: not told
};

constexpr Convention kConventions[] = {
    {"shunt", "SHUNT_RANK", "SHUNT_WORLD_SIZE", nullptr},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", nullptr},
    {"env", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
};

std::string or_empty(const char* name) {
  const char* value = text(name);
  return value ? value : "";
}

std::string job_of(std::string_view convention) {
  if (convention == "shunt") return or_empty("SHUNT_JOB");
  if (convention == "mpirun") return or_empty("PMIX_NAMESPACE") + "/" + or_empty("OMPI_MCA_ess_base_jobid");
  if (convention == "srun") return or_empty("SLURM_JOB_ID") + "." + or_empty("SLURM_STEP_ID");
  return or_empty("MASTER_ADDR") + ":" + or_empty("MASTER_PORT") + "/" + or_empty("TORCHELASTIC_RUN_ID");
}

std::optional<Environment::Launch> find_launch() {
  for (const Convention& convention : kConventions) {
    if (!text(convention.rank) || !text(convention.size)) continue;
    Environment::Launch launch;
    launch.rank = static_cast<std::int32_t>(number(convention.rank, 0, 0));
    launch.size = static_cast<std::int32_t>(number(convention.size, 1, 1));
    launch.local_size = launch.size;
    if (convention.local_size)
      launch.local_size = static_cast<std::int32_t>(number(convention.local_size, launch.size, 1));
    if (launch.rank >= launch.size)
      fail(ErrorCode::invalid_argument, "{}={} does not fit {}={}", convention.rank, launch.rank, convention.size,
           launch.size);
    launch.job = job_of(convention.name);
    launch.convention = convention.name;
    return launch;
  }
  return std::nullopt;
}

}  // namespace

Environment Environment::read() {
  Environment environment;
  environment.liveness = milliseconds("SHUNT_LIVENESS_MS", environment.liveness);
  environment.deadline = milliseconds("SHUNT_DEADLINE_MS", environment.deadline);
  environment.join = milliseconds("SHUNT_JOIN_MS", environment.join);
  environment.virtual_nodes = static_cast<std::int32_t>(number("SHUNT_VIRTUAL_NODES", environment.virtual_nodes, 1));
  environment.launch = find_launch();
  return environment;
}

}  // namespace shunt
