#include "bench/device/clock.hpp"

#include "bench/device/memory.hpp"
#include "bench/ranks.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/nanoseconds.cuh"

namespace shunt::bench {
namespace {

/// Far longer than ranks need to launch their work. Ends the kernel if the rank that opens the gate was killed.
constexpr std::uint64_t kMostWaitNs = 60'000'000'000;

__global__ void gate_kernel(const volatile std::uint32_t* opened, std::uint32_t round) {
  const std::uint64_t begin = device::nanoseconds();
  while (*opened < round && device::nanoseconds() - begin < kMostWaitNs) {
  }
}

__global__ void stamp_kernel(std::uint64_t* time) { *time = device::nanoseconds(); }

}  // namespace

struct DeviceClock::Shared {
  Shared() {
    void* pinned = nullptr;
    device::check(cudaHostAlloc(&pinned, sizeof(*opened), cudaHostAllocMapped), "pin memory");
    opened = static_cast<std::uint32_t*>(pinned);
    *opened = 0;
    device::check(cudaEventCreate(&origin), "make an event");
    device::check(cudaEventRecord(origin, nullptr), "record an event");
    device::check(cudaEventSynchronize(origin), "record an event");
    cudaFuncAttributes attributes;
    device::check(cudaFuncGetAttributes(&attributes, gate_kernel), "load the gate");
  }
  ~Shared() {
    (void)cudaEventDestroy(origin);
    (void)cudaFreeHost(const_cast<std::uint32_t*>(opened));
  }

  volatile std::uint32_t* opened = nullptr;
  cudaEvent_t origin = nullptr;
};

DeviceClock::DeviceClock(World& world, cudaStream_t stream)
    : world_(world),
      stream_(stream),
      shared_(share_from_rank_0<Shared>(world, [] { return std::make_shared<Shared>(); })) {
  device::check(cudaEventCreate(&begin_), "make an event");
  device::check(cudaEventCreate(&end_), "make an event");
}

DeviceClock::~DeviceClock() {
  (void)cudaEventDestroy(begin_);
  (void)cudaEventDestroy(end_);
}

void DeviceClock::time(Timings& timings, const std::string& name, const std::function<void()>& work) {
  ++round_;
  world_.barrier();
  gate_kernel<<<1, 1, 0, stream_>>>(shared_->opened, round_);
  try {
    device::check(cudaEventRecord(begin_, stream_), "record an event");
    work();
    device::check(cudaEventRecord(end_, stream_), "record an event");
    world_.barrier();
  } catch (...) {
    *shared_->opened = round_;  // work behind the gate must end before its memory is freed
    throw;
  }
  if (world_.rank().value == 0) *shared_->opened = round_;
  device::check(cudaEventSynchronize(end_), "wait for the timed work");
  float begin_ms = 0;
  float end_ms = 0;
  device::check(cudaEventElapsedTime(&begin_ms, shared_->origin, begin_), "read the time");
  device::check(cudaEventElapsedTime(&end_ms, shared_->origin, end_), "read the time");
  timings.record(name, begin_ms, end_ms);
}

Stamps::Stamps(std::size_t count) : count_(count), times_(allocate_on_device(count * sizeof(std::uint64_t))) {
  cudaFuncAttributes attributes;
  device::check(cudaFuncGetAttributes(&attributes, stamp_kernel), "load the stamp");
}

void Stamps::put(cudaStream_t stream) {
  auto* const time = reinterpret_cast<std::uint64_t*>(times_.get()) + next_;
  stamp_kernel<<<1, 1, 0, stream>>>(time);
  device::check(cudaGetLastError(), "put a stamp");
  next_ = (next_ + 1) % count_;
}

std::vector<std::uint64_t> Stamps::read(cudaStream_t stream) const {
  std::vector<std::uint64_t> times(count_);
  device::check(
      cudaMemcpyAsync(times.data(), times_.get(), count_ * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream),
      "read stamps");
  device::check(cudaStreamSynchronize(stream), "read stamps");
  return times;
}

}  // namespace shunt::bench
