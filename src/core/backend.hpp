// Backends: shared libraries of shunt that depend on third-party libraries. They are installed beside shunt and loaded
// at first use, so that nothing else needs UCX or PMIx to be installed.
#pragma once

#include <string>

namespace shunt {

/// The result of a backend's function kBackendEntry.
struct Backend {
  const char* name;       ///< the NAME of libshunt_NAME.so
  const char* build;      ///< build_id() of the backend
  const void* functions;  ///< a struct that the backend's header declares
};
inline constexpr const char* kBackendEntry = "shunt_backend";

struct LoadedBackend {
  const void* functions = nullptr;
  std::string why_not;  ///< if functions is null: the reason, and what to do
};

/// Loads libshunt_NAME.so, once for each name: from the folder of this library or program, from ../lib beside it, or
/// from the system's search path. Restores signal handlers that libraries replace while they are loaded.
const LoadedBackend& load_backend(const std::string& name);

/// Throws Error(unsupported) with the reason and what to do.
template <class Functions>
const Functions& require_backend(const std::string& name);

[[noreturn]] void fail_without_backend(const LoadedBackend& backend);

template <class Functions>
const Functions& require_backend(const std::string& name) {
  const LoadedBackend& loaded = load_backend(name);
  if (!loaded.functions) fail_without_backend(loaded);
  return *static_cast<const Functions*>(loaded.functions);
}

}  // namespace shunt
