// The carrier over UCX, in libshunt_ucx.so.
#pragma once

#include <memory>
#include <string>

#include "core/backend.hpp"
#include "transport/far/carrier.hpp"

namespace shunt::ucx {

struct WorkerOptions {
  /// UCX's names of network devices, comma-separated; empty: all.
  std::string devices;
  /// "first-last"; empty: any.
  std::string port_range;
  /// UCX_TLS is set.
  bool has_ucx_transports = false;
};

/// The library's functions.
struct Functions {
  std::unique_ptr<far::Carrier> (*make_carrier)(const WorkerOptions& options);
};

/// True where the library and UCX can be loaded; loads them.
[[nodiscard]] inline bool is_available() { return load_backend("ucx").functions != nullptr; }

/// Throws Error(unsupported) where it is not available, Error(system).
inline std::unique_ptr<far::Carrier> make_carrier(const WorkerOptions& options) {
  return require_backend<Functions>("ucx").make_carrier(options);
}

}  // namespace shunt::ucx
