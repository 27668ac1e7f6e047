// Libraries of shunt that hold what needs somebody else's library. They lie beside it and are loaded when they are
// used, so that nothing else needs UCX or PMIx to be installed.
#pragma once

#include <string>

namespace shunt {

/// What such a library gives by its function kBackendEntry.
struct Backend {
  const char* build;      ///< build_id() when it was built
  const void* functions;  ///< a struct that the backend's header declares
};
inline constexpr const char* kBackendEntry = "shunt_backend";

struct LoadedBackend {
  const void* functions = nullptr;
  std::string why_not;  ///< says what to do where there are none
};

/// Loads libshunt_NAME.so, once for each: from where this library or program lies, from ../lib beside it, or from
/// wherever the system looks. Signal handlers that libraries install meanwhile are taken back.
const LoadedBackend& load_backend(const std::string& name);

/// Throws Error(unsupported) that says what to do.
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
