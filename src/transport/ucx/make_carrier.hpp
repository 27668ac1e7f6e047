// The carrier over UCX, whether or not it was built in.
#pragma once

#include <memory>
#include <string>

#include "transport/far/carrier.hpp"

namespace shunt::ucx {

struct WorkerOptions {
  /// UCX's names of network devices, comma-separated; empty: all.
  std::string devices;
  /// "first-last"; empty: any.
  std::string port_range;
  /// The user says in UCX_TLS by which means UCX moves bytes.
  bool has_ucx_transports = false;
};

[[nodiscard]] bool is_built_in();
/// Throws Error(unsupported) where it was not built in, Error(system).
std::unique_ptr<far::Carrier> make_carrier(const WorkerOptions& options);

}  // namespace shunt::ucx
