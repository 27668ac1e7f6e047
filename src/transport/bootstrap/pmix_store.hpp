// Text that rank 0 publishes and the others read, through the launcher's PMIx server; in libshunt_pmix.so.
#pragma once

#include <optional>
#include <string>

#include "core/backend.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::bootstrap {

/// The library's functions.
struct PmixStore {
  /// Under the name of the calling rank. May be called before and after MPI_Init; PMIx stays until this process exits,
  /// as an MPI_Init later would find it ended otherwise. Throws Error(system).
  void (*publish)(const std::string& key, const std::string& text);

  /// What rank 0 publishes; waits for it, and is empty after the deadline. Throws Error(system).
  std::optional<std::string> (*read_from_rank_0)(const std::string& key, Deadline deadline);
};

}  // namespace shunt::bootstrap
