// NCCL, loaded at run time: without its header and library at build time, so one build serves machines with and without
// it, and with any version from 2.14 on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace shunt::nccl {

/// The results of NCCL's functions that are used here.
enum Result : int { kSuccess = 0, kInProgress = 7 };
/// An element type of NCCL's.
enum DataType : int { kBytes = 1 };

struct OpaqueComm;
using Comm = OpaqueComm*;

struct UniqueId {
  char bytes[128];
};

/// As NCCL 2.14 declares it; later versions recognise it by its size and fill in what came after.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 1;
};

/// NCCL's functions, under its own names but for the prefix.
struct Library {
  /// Loaded once per process. Throws Error(unsupported) that names what is missing.
  static const Library& load();

  int (*GetVersion)(int* version);
  int (*GetUniqueId)(UniqueId* id);
  int (*CommInitRankConfig)(Comm* comm, int size, UniqueId id, int rank, Config* config);
  int (*CommAbort)(Comm comm);
  int (*CommGetAsyncError)(Comm comm, int* state);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*Send)(const void* from, std::size_t count, int type, int peer, Comm comm, cudaStream_t stream);
  int (*Recv)(void* to, std::size_t count, int type, int peer, Comm comm, cudaStream_t stream);
  const char* (*GetErrorString)(int result);
};

}  // namespace shunt::nccl
