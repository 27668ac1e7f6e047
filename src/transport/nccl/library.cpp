#include "transport/nccl/library.hpp"

#include <dlfcn.h>

#include "core/fail.hpp"

namespace shunt::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = 21400;

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (!function) fail(ErrorCode::unsupported, "NCCL: {} has no {}", kName, name);
}

Library open() {
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail(ErrorCode::unsupported, "NCCL: {}", dlerror());
  Library library{};
  find(handle, "ncclGetVersion", library.GetVersion);
  find(handle, "ncclGetUniqueId", library.GetUniqueId);
  find(handle, "ncclCommInitRankConfig", library.CommInitRankConfig);
  find(handle, "ncclCommAbort", library.CommAbort);
  find(handle, "ncclCommGetAsyncError", library.CommGetAsyncError);
  find(handle, "ncclGroupStart", library.GroupStart);
  find(handle, "ncclGroupEnd", library.GroupEnd);
  find(handle, "ncclSend", library.Send);
  find(handle, "ncclRecv", library.Recv);
  find(handle, "ncclGetErrorString", library.GetErrorString);
  int version = 0;
  if (library.GetVersion(&version) != kSuccess || version < kOldest)
    fail(ErrorCode::unsupported, "NCCL: version {}, expected {} or later", version, kOldest);
  return library;
}

}  // namespace

const Library& Library::load() {
  static const Library library = open();
  return library;
}

}  // namespace shunt::nccl
