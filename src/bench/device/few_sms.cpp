#include "bench/device/few_sms.hpp"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "bench/device/gemm.hpp"
#include "bench/device/kernels.hpp"
#include "bench/ranks.hpp"
#include "core/cuda/check.hpp"
#include "core/fail.hpp"

namespace shunt::bench {
namespace {

/// The driver's function of this name. Not linked, so that the command line starts without a driver.
template <class Function>
Function* driver_function(const char* name) {
  constexpr unsigned kWithStreamsOfGreenContexts = 12050;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  device::check(cudaGetDriverEntryPointByVersion(name, &entry, kWithStreamsOfGreenContexts, cudaEnableDefault, &found),
                "find green contexts");
  if (found != cudaDriverEntryPointSuccess) fail(ErrorCode::unsupported, "--sms: this driver has no {}", name);
  return reinterpret_cast<Function*>(entry);
}
#define SHUNT_DRIVER(name) driver_function<decltype(name)>(#name)

void check(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS) fail(ErrorCode::unsupported, "--sms: can't {}: CUresult {}", what, int{status});
}

constexpr const char* kStores = "stores of few";
constexpr std::int32_t kTimesStored = 8;
constexpr std::int64_t kGemmSize = 8192;
constexpr int kGemmsAlone = 60;  // takes about as long as beside the shuffle, because clocks fall under load
constexpr int kPairs = 8;        // enough that many products fit beside them
constexpr int kRounds = 5;

std::int32_t count_seen(World& world, cudaStream_t stream) {
  const std::vector<std::uint32_t> mine = sms_of(stream);
  std::set<std::uint32_t> seen;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<std::uint32_t> sms(bytes.size() / sizeof(std::uint32_t));
    std::memcpy(sms.data(), bytes.data(), bytes.size());
    seen.insert(sms.begin(), sms.end());
  }
  return static_cast<std::int32_t>(seen.size());
}

std::int32_t count_all() {
  int device = 0;
  int count = 0;
  device::check(cudaGetDevice(&device), "look up the current device");
  device::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "count multiprocessors");
  return count;
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
    // Prefer a split in which the rest keeps whole clusters, which matrix kernels use; otherwise split off single
    // multiprocessors.
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
      fail(ErrorCode::unsupported, "--sms {}: this device can provide {}", num_few, few.sm.smCount);
  }

  /// Makes a context per stream, because a green context may be used by one thread at a time.
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
    : shared_(share_from_rank_0<Shared>(world, [&] { return std::make_shared<Shared>(few); })) {}

std::shared_ptr<CUstream_st> SmPartition::stream_on_few() const { return shared_->make_stream(shared_->few); }
std::shared_ptr<CUstream_st> SmPartition::stream_on_rest() const { return shared_->make_stream(shared_->rest); }
std::int32_t SmPartition::num_rest() const { return static_cast<std::int32_t>(shared_->rest.sm.smCount); }

FewSms::FewSms(World& world, const ShuffleConfig& config, DeviceClock& clock, cudaStream_t stream,
               const SmPartition& partition)
    : world_(world), config_(config), clock_(clock), stream_(stream), partition_(partition) {
  result_.sms_seen = count_seen(world, stream);
  if (result_.sms_seen > config.sms)
    fail(ErrorCode::internal, "--sms {}: kernels ran on {} multiprocessors", config.sms, result_.sms_seen);
}

void FewSms::measure_stores(Timings& timings, std::byte* buffer, std::size_t bytes) const {
  clock_.time(timings, kStores, [&] {
    if (world_.rank().value == 0) launch_stores(buffer, bytes, kTimesStored, config_.sms, stream_);
  });
}

// Every round measures everything, so that all measurements see the same clocks: under load these fall for seconds.
void FewSms::measure_gemm(DeviceSystem& system) {
  if (!Gemm::is_available()) return;
  const bool multiplies = world_.rank().value == 0;
  const std::unique_ptr<Gemm> gemm = multiplies ? std::make_unique<Gemm>(kGemmSize) : nullptr;
  const auto rest = partition_.stream_on_rest();
  const auto shuffle = [&] {
    for (int pair = 0; pair < kPairs; ++pair) {
      system.dispatch();
      system.combine();
    }
  };
  Timings timings;
  std::vector<double> on_all, on_rest, beside;
  const auto add = [](std::vector<double>& products, const std::vector<double>& more) {
    products.insert(products.end(), more.begin(), more.end());
  };
  for (int round = 0; round < kRounds; ++round) {
    if (multiplies) {
      add(on_all, GemmSeries(*gemm, count_all(), nullptr, kGemmsAlone).run());
      add(on_rest, GemmSeries(*gemm, partition_.num_rest(), rest.get(), kGemmsAlone).run());
    }
    clock_.time(timings, "alone", shuffle);
    std::unique_ptr<GemmSeries> series;
    if (multiplies) {
      const double enough = timings.median("alone") / GemmSeries::median(on_rest) + 2;
      series = std::make_unique<GemmSeries>(*gemm, partition_.num_rest(), rest.get(), static_cast<int>(enough));
    }
    clock_.time(timings, "beside", [&] {
      if (multiplies) series->launch_after(stream_);
      shuffle();
      if (multiplies) series->count_until(stream_);
    });
    if (multiplies) add(beside, series->wait());
  }
  timings.take_slowest(world_);
  result_.pair_ms = timings.median("alone") / kPairs;
  result_.pair_beside_gemm_ms = timings.median("beside") / kPairs;
  result_.gemm_ms = GemmSeries::median(on_all);
  result_.gemm_on_rest_ms = GemmSeries::median(on_rest);
  result_.gemm_beside_ms = GemmSeries::median(beside);
}

FewSmsResult FewSms::summarise(const Timings& timings, std::size_t stored_bytes, const SystemResult& shunt,
                               double delivered_bytes, double copy_gbps) const {
  FewSmsResult result = result_;
  result.store_gbps = static_cast<double>(stored_bytes) * kTimesStored / timings.median(kStores) / 1e6;
  result.limit_gbps = std::min(result.store_gbps, copy_gbps * delivered_bytes / static_cast<double>(shunt.moved_bytes));
  const auto share = [&](double ms) { return delivered_bytes / ms / 1e6 / result.limit_gbps; };
  result.dispatch_share = share(shunt.dispatch_ms);
  result.combine_share = share(shunt.combine_ms);
  result.dispatch_kernel_share = share(shunt.dispatch_kernel_ms);
  result.combine_kernel_share = share(shunt.combine_kernel_ms);
  return result;
}

}  // namespace shunt::bench
