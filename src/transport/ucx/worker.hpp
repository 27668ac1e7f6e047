// UCX objects with owners, and failures as Errors. One thread at a time.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/ucx/make_carrier.hpp"

namespace shunt::ucx {

/// Throws Error(system) that says what was tried.
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

  /// Once all peers are connected: nobody else can connect any more. A stranger who speaks UCX's protocol could end
  /// this process otherwise, as UCX takes what it hears for granted.
  void refuse_strangers() const;

 private:
  void start(const WorkerOptions& options);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::uint16_t port_ = 0;  // where UCX listens for TCP connections, on whatever addresses
};

}  // namespace shunt::ucx
