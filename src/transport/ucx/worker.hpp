// UCX objects with owners, and failures as Errors. One thread at a time.
#pragma once

#include <linux/filter.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/fail.hpp"
#include "transport/net/ports.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::ucx {

/// Throws Error(system) that names the failed step.
inline void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) fail(ErrorCode::system, "UCX can't {}: {}", what, ucs_status_string(status));
}

struct Config {
  Config() { check(ucp_config_read(nullptr, nullptr, &handle), "read the configuration"); }
  ~Config() { ucp_config_release(handle); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;

  void set(const char* name, const std::string& value) const {
    const ucs_status_t status = ucp_config_modify(handle, name, value.c_str());
    if (status != UCS_OK)
      fail(ErrorCode::invalid_argument, "UCX does not take {}={}: {}", name, value, ucs_status_string(status));
  }

  ucp_config_t* handle = nullptr;
};

inline bool is_listening(int socket) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0;
}

class Worker {
 public:
  explicit Worker(const Environment::Network& options) {
    net::listen_at_free_port(options.port_range, [&](std::uint16_t port) {
      port_ = port;
      start(options);
    });
  }
  ~Worker() {
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] ucp_worker_h get() const { return worker_; }
  /// What peers need to reach this worker.
  [[nodiscard]] std::vector<std::byte> address() const {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "give its address");
    const auto* begin = reinterpret_cast<const std::byte*>(address);
    std::vector<std::byte> bytes(begin, begin + length);
    ucp_worker_release_address(worker_, address);
    return bytes;
  }
  /// Readable when there is something to progress, after arm() has returned true.
  [[nodiscard]] int event_fd() const { return event_fd_; }
  /// False: there is something to progress already.
  [[nodiscard]] bool arm() const {
    const ucs_status_t status = ucp_worker_arm(worker_);
    if (status == UCS_ERR_BUSY) return false;
    check(status, "arm its events");
    return true;
  }

  /// Accepts no more connections, once all peers are connected. UCX trusts what arrives at its ports, so an
  /// unauthenticated connection could otherwise end this process.
  void stop_accepting() const {
    // UCX offers no way to end its listening. A filter that lets no packet through does; connections have sockets of
    // their own.
    sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog filter{1, &drop};
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::atoi(entry.path().filename().c_str());
      if (is_listening(fd) && net::port_of(fd) == port_ &&
          setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0)
        fail_errno("can't stop accepting at port {}", port_);
    }
  }

 private:
  void start(const Environment::Network& options) {
    const Config config;
    // shunt decides which ranks share memory, so UCX's own shared memory is off.
    if (!options.has_ucx_transports) config.set("TLS", "^sm");
    if (!options.devices.empty()) config.set("NET_DEVICES", options.devices);
    // UCX up to 1.13 reads the first name, later versions the second.
    for (const char* name : {"PORT_RANGE", "TCP_PORT_RANGE"}) config.set(name, fmt::format("{}-{}", port_, port_));

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    check(ucp_init(&params, config.handle, &context_), "start");
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    try {
      check(ucp_worker_create(context_, &worker_params, &worker_), "make a worker");
      check(ucp_worker_get_efd(worker_, &event_fd_), "give an event descriptor");
    } catch (...) {
      if (worker_) ucp_worker_destroy(std::exchange(worker_, nullptr));
      ucp_cleanup(context_);
      throw;
    }
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::uint16_t port_ = 0;  // where UCX listens for TCP connections, on whatever addresses
};

}  // namespace shunt::ucx
