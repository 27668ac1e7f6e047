// UCX objects with owners, and failures as Errors. One thread at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/ucx/make_carrier.hpp"

namespace shunt::ucx {

/// Throws Error(system) that names the failed step.
void check(ucs_status_t status, const char* what);

class Worker {
 public:
  explicit Worker(const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] ucp_worker_h get() const { return worker_; }
  /// What peers need to reach this worker.
  [[nodiscard]] std::vector<std::byte> address() const;
  /// Readable when there is something to progress, after arm() has returned true.
  [[nodiscard]] int event_fd() const { return event_fd_; }
  /// False: there is something to progress already.
  [[nodiscard]] bool arm() const;

  /// For when all peers are connected: no connection is accepted any more. UCX trusts what arrives at its ports, so an
  /// unauthenticated connection could otherwise end this process.
  void stop_accepting() const;

 private:
  void start(const WorkerOptions& options);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::uint16_t port_ = 0;  // where UCX listens for TCP connections, on whatever addresses
};

}  // namespace shunt::ucx
