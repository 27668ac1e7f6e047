// What rank 0 publishes and the others read, through the launcher's PMIx server; libshunt_pmix.so holds it.
#pragma once

#include <optional>
#include <string>

#include "core/backend.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::bootstrap {

/// What the library offers.
struct PmixStore {
  /// Under the name of the calling rank. May be called before and after MPI_Init; PMIx stays until this process exits,
  /// as an MPI_Init later would find it ended otherwise. Throws Error(system).
  void (*publish)(const std::string& key, const std::string& text);

  /// What rank 0 has published, or will have; empty after the deadline. Throws Error(system).
  std::optional<std::string> (*read_from_rank_0)(const std::string& key, Deadline deadline);
};

}  // namespace shunt::bootstrap
