#include "core/backend.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/build.hpp"
#include "core/fail.hpp"
#include "core/kept_signals.hpp"

namespace shunt {
namespace {

std::vector<std::string> places_of(const std::string& file) {
  std::vector<std::string> owners = {"/proc/self/exe"};
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&load_backend), &self) != 0 && self.dli_fname)
    owners.insert(owners.begin(), self.dli_fname);
  std::vector<std::string> places;
  for (const std::string& owner : owners) {
    std::error_code ignored;  // then the system searches
    const auto folder = std::filesystem::canonical(owner, ignored).parent_path();
    for (const auto& place : {folder / file, folder / ".." / "lib" / file, folder / ".." / SHUNT_LIBDIR / file})
      if (!folder.empty() && std::filesystem::exists(place, ignored)) places.push_back(place.string());
  }
  places.push_back(file);
  return places;
}

LoadedBackend load(const std::string& name) {
  const std::string file = "libshunt_" + name + ".so";
  const KeptSignals kept;
  std::string why_not;
  for (const std::string& place : places_of(file)) {
    void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const std::string error = dlerror();
      const bool is_missing = error.starts_with(file + ": cannot open shared object file: No such file");
      if (why_not.empty() && !is_missing)
        why_not = fmt::format("can't load {}: {}; install what it needs", place, error);
      continue;
    }
    const auto entry = reinterpret_cast<Backend (*)()>(dlsym(handle, kBackendEntry));
    const Backend backend = entry ? entry() : Backend{name.c_str(), "none", nullptr};
    const bool is_of_this_build = std::string_view(backend.build) == build_id();
    if (is_of_this_build && backend.name == name) return {backend.functions, ""};
    if (is_of_this_build) {
      why_not = fmt::format("can't use {}: it is libshunt_{}.so under another name", place, backend.name);
      continue;
    }
    why_not = fmt::format("can't use {}: it is of build {}, this is build {}; install both from one build", place,
                          backend.build, build_id());
  }
  if (why_not.empty())
    why_not = fmt::format(
        "can't find {}, neither beside the program or libshunt nor on the search path; it comes with "
        "builds of shunt that found {}",
        file, name);
  return {nullptr, why_not};
}

}  // namespace

const LoadedBackend& load_backend(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, LoadedBackend> backends;
  const std::lock_guard lock(mutex);
  const auto found = backends.find(name);
  return found != backends.end() ? found->second : backends.emplace(name, load(name)).first->second;
}

void fail_without_backend(const LoadedBackend& backend) { fail(ErrorCode::unsupported, "{}", backend.why_not); }

}  // namespace shunt
