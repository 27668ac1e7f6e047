// The carrier over UCX, in libshunt_ucx.so.
#pragma once

#include <memory>

#include "core/backend.hpp"
#include "shunt/environment.hpp"
#include "transport/far/carrier.hpp"

namespace shunt::ucx {

/// The library's functions.
struct Functions {
  /// Uses UCX's names of `devices`, or all, `port_range` and `has_ucx_transports`. Throws Error(system).
  std::unique_ptr<far::Carrier> (*make_carrier)(const Environment::Network& options);
};

}  // namespace shunt::ucx
