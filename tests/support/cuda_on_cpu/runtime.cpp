// Devices, errors, and what kernels are asked for and launched with.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "errors.hpp"
#include "fibers.hpp"
#include "launch.hpp"
#include "stream.hpp"

namespace cuda_on_cpu {
namespace {

// Those of compute capability 8.0, but for the number of multiprocessors.
constexpr int kMajor = 8;
constexpr int kMinor = 0;
constexpr int kMultiprocessors = 8;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kMostThreads = 1024;
constexpr int kSharedBytes = 48 << 10;
constexpr int kMostSharedBytes = 227 << 10;    // as 9.0 has; shunt's largest plans need more than 8.0 has
constexpr unsigned kMostBlocksOfGrid = 65535;  // in y and z
constexpr int kVersion = 13000;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;

std::atomic<bool> is_used = false;
std::atomic<bool> was_used_before_fork = false;

/// CUDA_ON_CPU_DEVICES, or 1; none where CUDA_VISIBLE_DEVICES hides all.
int num_devices() {
  static const int count = [] {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (std::string_view(visible).empty() || std::string_view(visible) == "-1")) return 0;
    const char* const wanted = std::getenv("CUDA_ON_CPU_DEVICES");
    return wanted ? std::atoi(wanted) : 1;
  }();
  return count;
}

/// Dynamic shared memory that kernels may be launched with, where it is more than others may.
struct SharedLimits {
  std::mutex mutex;
  std::map<const void*, int> of_kernel;

  int get(const void* kernel) {
    const std::lock_guard lock(mutex);
    const auto found = of_kernel.find(kernel);
    return found == of_kernel.end() ? kSharedBytes : found->second;
  }
};
SharedLimits& shared_limits() {
  static auto* const limits = new SharedLimits;
  return *limits;
}

cudaError_t check_launch(const void* kernel, const Grid& grid) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  const auto num_threads = std::uint64_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  if (num_threads == 0 || num_threads > kMostThreads || grid.num_blocks() == 0 ||
      std::max(grid.blocks.y, grid.blocks.z) > kMostBlocksOfGrid)
    return fail(cudaErrorInvalidConfiguration);
  if (grid.shared_bytes > static_cast<std::size_t>(shared_limits().get(kernel))) return fail(cudaErrorInvalidValue);
  return cudaSuccess;
}

}  // namespace

cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

cudaError_t check_process() {
  if (num_devices() == 0) return fail(cudaErrorNoDevice);
  if (was_used_before_fork) return fail(cudaErrorInitializationError);
  if (!is_used.exchange(true)) pthread_atfork(nullptr, nullptr, [] { was_used_before_fork = true; });
  return cudaSuccess;
}

int current_device() { return device; }

void submit_kernel(const void* kernel, dim3 blocks, dim3 threads, std::size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> body) {
  Grid grid{blocks, threads, shared_bytes, std::move(body)};
  if (check_launch(kernel, grid) != cudaSuccess) return;
  (void)submit(stream, {[grid = std::move(grid)] { run(grid); }, cudaGraphNodeTypeKernel, blocks});
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  thread_local char name[32];
  std::snprintf(name, sizeof(name), "cudaError %d", static_cast<int>(error));
  return name;
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorNotSupported: return "operation not supported";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge: return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    default: return cudaGetErrorName(error);
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::string_view(name) == "cuGraphKernelNodeGetParams";
  *function = is_known ? reinterpret_cast<void*>(&graph_kernel_node_params) : nullptr;
  if (result) *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_devices();
  return check_process();
}
cudaError_t cudaGetDevice(int* current) {
  *current = device;
  return check_process();
}
cudaError_t cudaSetDevice(int chosen) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (chosen < 0 || chosen >= num_devices()) return fail(cudaErrorInvalidDevice);
  device = chosen;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  for (const auto& queue : all_queues())
    if (queue->device() == device) queue->finish();
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) {
  *can = from != to;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int chosen) {
  std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02x:00.0", chosen);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = kThreadsPerMultiprocessor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = kMostThreads; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kSharedBytes; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kMostSharedBytes; break;
    case cudaDevAttrComputeCapabilityMajor: *value = kMajor; break;
    case cudaDevAttrComputeCapabilityMinor: *value = kMinor; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int chosen) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (chosen < 0 || chosen >= num_devices()) return fail(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "CUDA on CPU");
  std::size_t free_bytes = 0;
  (void)cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
  properties->major = kMajor;
  properties->minor = kMinor;
  properties->multiProcessorCount = kMultiprocessors;
  properties->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  properties->maxThreadsPerBlock = kMostThreads;
  properties->sharedMemPerBlock = kSharedBytes;
  properties->sharedMemPerBlockOptin = kMostSharedBytes;
  properties->warpSize = 32;
  properties->pciBusID = chosen;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  *attributes = {};
  attributes->maxThreadsPerBlock = kMostThreads;
  attributes->ptxVersion = attributes->binaryVersion = 10 * kMajor + kMinor;
  attributes->maxDynamicSharedSizeBytes = shared_limits().get(kernel);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > kMostSharedBytes) return fail(cudaErrorInvalidValue);
  const std::lock_guard lock(shared_limits().mutex);
  shared_limits().of_kernel[kernel] = value;
  return cudaSuccess;
}

}  // extern "C"
