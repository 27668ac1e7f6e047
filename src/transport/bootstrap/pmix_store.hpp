// What rank 0 publishes and the others read, through the launcher's PMIx server.
#pragma once

#include <optional>
#include <string>

#include "transport/wait_ready.hpp"

namespace shunt::bootstrap {

/// True where PMIx was built in.
bool has_pmix();

/// Under the name of the calling rank. May be called before and after MPI_Init; PMIx stays until this process exits, as
/// an MPI_Init later would find it ended otherwise. Throws Error(system).
void publish(const std::string& key, const std::string& text);

/// What rank 0 has published, or will have; empty after the deadline. Throws Error(system).
std::optional<std::string> read_from_rank_0(const std::string& key, Deadline deadline);

}  // namespace shunt::bootstrap
