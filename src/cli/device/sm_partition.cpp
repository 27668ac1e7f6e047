#include "cli/device/sm_partition.hpp"

#include <cuda.h>

#include <mutex>

#include "cli/device/share.hpp"
#include "core/cuda/check.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

/// The driver's function of this name. Not linked, so that the command line starts where there is no driver.
template <class Function>
Function* driver_function(const char* name) {
  constexpr unsigned kWithStreamsOfGreenContexts = 12050;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  device::check(cudaGetDriverEntryPointByVersion(name, &entry, kWithStreamsOfGreenContexts, cudaEnableDefault, &found),
                "look for green contexts");
  if (found != cudaDriverEntryPointSuccess) fail(ErrorCode::unsupported, "--sms: this driver has no {}", name);
  return reinterpret_cast<Function*>(entry);
}
#define SHUNT_DRIVER(name) driver_function<decltype(name)>(#name)

void check(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS) fail(ErrorCode::unsupported, "--sms: can't {}: CUresult {}", what, int{status});
}

}  // namespace

struct SmPartition::Shared {
  explicit Shared(std::int32_t num_few) {
    device::check(cudaGetDevice(&device), "look up the current device");
    device::check(cudaFree(nullptr), "start CUDA");
    CUdevResource all;
    check(SHUNT_DRIVER(cuDeviceGetDevResource)(device, &all, CU_DEV_RESOURCE_TYPE_SM), "count multiprocessors");
    const unsigned num_all = all.sm.smCount;
    if (num_few < 1 || static_cast<unsigned>(num_few) >= num_all)
      fail(ErrorCode::invalid_argument, "--sms {}: expected 1 to {}", num_few, num_all - 1);
    // The rest keeps its clusters, which matrix kernels use, where the device's grain allows it; else the few are cut
    // out one by one.
    const auto split = SHUNT_DRIVER(cuDevSmResourceSplitByCount);
    unsigned groups = 1;
    const CUresult in_whole_grains = split(&rest, &groups, &all, &few, 0, num_all - static_cast<unsigned>(num_few));
    if (in_whole_grains != CUDA_SUCCESS || few.sm.smCount != static_cast<unsigned>(num_few)) {
      groups = 1;
      check(split(&few, &groups, &all, &rest, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
                  static_cast<unsigned>(num_few)),
            "split multiprocessors");
    }
    if (few.sm.smCount != static_cast<unsigned>(num_few))
      fail(ErrorCode::unsupported, "--sms {}: this device can give {}", num_few, few.sm.smCount);
  }

  /// Streams don't share contexts, as a green context is for one thread at a time.
  std::shared_ptr<CUstream_st> make_stream(CUdevResource& part) {
    const std::lock_guard lock(mutex);
    CUdevResourceDesc description = nullptr;
    check(SHUNT_DRIVER(cuDevResourceGenerateDesc)(&description, &part, 1), "describe a green context");
    CUgreenCtx context = nullptr;
    check(SHUNT_DRIVER(cuGreenCtxCreate)(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
          "make a green context");
    const auto destroy = SHUNT_DRIVER(cuGreenCtxDestroy);
    CUstream stream = nullptr;
    const CUresult status = SHUNT_DRIVER(cuGreenCtxStreamCreate)(&stream, context, CU_STREAM_NON_BLOCKING, 0);
    if (status != CUDA_SUCCESS) (void)destroy(context);
    check(status, "make a stream of a green context");
    return {stream, [context, destroy](CUstream ended) {
              (void)cudaStreamDestroy(ended);
              (void)destroy(context);
            }};
  }

  int device = 0;
  CUdevResource few{};
  CUdevResource rest{};
  std::mutex mutex;
};

SmPartition::SmPartition(World& world, std::int32_t few)
    : shared_(share_of_rank_0<Shared>(world, [&] { return std::make_shared<Shared>(few); })) {}

std::shared_ptr<CUstream_st> SmPartition::stream_on_few() const { return shared_->make_stream(shared_->few); }
std::shared_ptr<CUstream_st> SmPartition::stream_on_rest() const { return shared_->make_stream(shared_->rest); }
std::int32_t SmPartition::num_rest() const { return static_cast<std::int32_t>(shared_->rest.sm.smCount); }

}  // namespace shunt::cli
