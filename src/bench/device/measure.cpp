#include "bench/shuffle/measure.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "bench/device/clock.hpp"
#include "bench/device/few_sms.hpp"
#include "bench/device/memory.hpp"
#include "bench/device/systems.hpp"
#include "bench/shuffle/workload.hpp"
#include "core/cuda/captured_graph.hpp"
#include "core/cuda/stream.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/copy_bytes.hpp"

namespace shunt::bench {
namespace {

/// Size of both buffers of all ranks together: many times any device's cache.
constexpr std::size_t kCopiedBytes = std::size_t{4} << 30;

/// Plan, dispatch and combine, many times in one graph.
const std::string kPairs = "pairs";
/// The same with a time stamp before, between and after operations; planning counts as part of dispatch.
const std::string kStampedPairs = "stamped pairs";
const std::string kStampedDispatch = "stamped dispatch";
const std::string kStampedCombine = "stamped combine";

/// Waiting kernels must not occupy all multiprocessors, or the ranks they wait for could not run.
void check_enough_sms(const ShuffleConfig& config) {
  int device = 0;
  int threads_per_sm = 0;
  device::check(cudaGetDevice(&device), "look up the current device");
  device::check(cudaDeviceGetAttribute(&threads_per_sm, cudaDevAttrMaxThreadsPerMultiProcessor, device),
                "query a device");
  const std::int32_t least = least_sms(config.ranks, kPlanThreads, threads_per_sm);
  if (config.sms < least)
    fail(ErrorCode::invalid_argument, "--sms {}: {} ranks that wait for each other need {}", config.sms, config.ranks,
         least);
}

/// The streams of a rank.
struct Streams {
  Streams(World& world, const ShuffleConfig& config) {
    if (config.sms == 0) return;
    check_enough_sms(config);
    partition.emplace(world, config.sms);
    own = partition->stream_on_few();
  }
  std::optional<SmPartition> partition;
  std::shared_ptr<CUstream_st> all_sms = device::make_stream();  ///< not restricted; for rates of the whole device
  std::shared_ptr<CUstream_st> own = all_sms;  ///< for systems; restricted to few multiprocessors with --sms
};

class DeviceBenchmark {
 public:
  DeviceBenchmark(World& world, const ShuffleConfig& config)
      : world_(world),
        config_(config),
        streams_(world, config),
        workload_(config),
        x_(upload(workload_.tokens(world.rank().index()))),
        clock_(world, stream()),
        clock_all_sms_(world, all_sms()),
        copied_bytes_(kCopiedBytes / 2 / static_cast<std::size_t>(config.ranks)),
        from_(allocate_on_device(copied_bytes_)),
        to_(allocate_on_device(copied_bytes_)) {
    if (config.layout == Layout::padded)
      systems_.push_back(std::make_unique<DevicePaddedSystem>(world, config, workload_, x_, stream()));
    else
      systems_.push_back(std::make_unique<DeviceShuntSystem>(world, config, workload_, x_, stream()));
    if (config.wants("unfused"))
      systems_.push_back(std::make_unique<DeviceUnfusedSystem>(world, config, workload_, x_, stream()));
    // First uses load code, which waits for the device and would deadlock behind a gate.
    device::check(cudaMemsetAsync(from_.get(), 0x3c, copied_bytes_, all_sms()), "fill a buffer");
    copy();
    device::launch(device::CopyBytes{from_.get(), to_.get(), copied_bytes_}, all_sms());
    device::check(cudaStreamSynchronize(all_sms()), "finish");
    world.barrier();
  }

  ShuffleResult run() {
    for (const auto& system : systems_) verify(*system);
    if (config_.sms > 0) few_sms_.emplace(world_, config_, clock_, stream(), *streams_.partition);
    if (config_.graph > 0) capture(*systems_.front());
    for (int i = -config_.warmup; i < config_.iterations; ++i) {
      if (i == 0) timings_.clear();
      measure_once();
    }
    if (few_sms_) few_sms_->measure_gemm(*systems_.front());
    for (const auto& system : systems_) system->check();
    timings_.take_slowest(world_);
    summarise();
    world_.barrier();  // other ranks may still use this rank's memory
    return result_;
  }

 private:
  [[nodiscard]] cudaStream_t stream() const { return streams_.own.get(); }
  [[nodiscard]] cudaStream_t all_sms() const { return streams_.all_sms.get(); }

  void finish() const { device::check(cudaStreamSynchronize(stream()), "finish"); }

  void copy() const {
    device::check(cudaMemcpyAsync(to_.get(), from_.get(), copied_bytes_, cudaMemcpyDeviceToDevice, all_sms()), "copy");
  }

  [[nodiscard]] std::vector<std::byte> download(const ConstTensor& tensor) const {
    return bench::download(tensor.data, tensor.bytes(), stream());
  }

  void verify(DeviceSystem& system) {
    const Verifier verifier(config_, workload_, world_.rank().index(), system.kind());
    const auto poison = [&](const ConstTensor& tensor) {
      device::check(cudaMemsetAsync(const_cast<std::byte*>(tensor.data), 0xa5, tensor.bytes(), stream()), "poison");
    };
    const auto on_host = [](const std::vector<std::byte>& bytes, const ConstTensor& tensor) {
      return borrow(static_cast<const void*>(bytes.data()), tensor.dtype, tensor.rows, tensor.cols);
    };
    poison(system.rows());
    poison(system.scales());
    poison(system.result());
    finish();
    world_.barrier();  // systems that alternate send without a barrier
    system.plan();
    system.dispatch();
    finish();
    system.check();
    {
      const auto rows = download(system.rows());
      const auto scales = download(system.scales());
      verifier.check_dispatch(system.name(),
                              {on_host(rows, system.rows()),
                               system.num_rows(),
                               {reinterpret_cast<const float*>(scales.data()), scales.size() / sizeof(float)},
                               system.row_counts()});
    }
    {
      const Tensor expert_out = system.expert_out();
      std::vector<std::byte> host(expert_out.bytes());
      verifier.fill_expert_out(borrow(host.data(), expert_out.dtype, expert_out.rows, expert_out.cols));
      device::check(cudaMemcpyAsync(expert_out.data, host.data(), host.size(), cudaMemcpyHostToDevice, stream()),
                    "upload");
      finish();
    }
    world_.barrier();
    system.combine();
    const auto result = download(system.result());
    verifier.check_combine(system.name(), on_host(result, system.result()));
    world_.barrier();
  }

  struct Operation {
    std::string name;
    std::function<void()> work;
  };
  [[nodiscard]] static std::vector<Operation> operations_of(DeviceSystem& system) {
    std::vector<Operation> all = {{system.name() + " plan", [&] { system.plan(); }},
                                  {system.name() + " dispatch", [&] { system.dispatch(); }},
                                  {system.name() + " combine", [&] { system.combine(); }}};
    if (system.alternates()) return all;
    all.push_back({system.name() + " planned dispatch", [&] {
                     system.plan();
                     system.dispatch();
                   }});
    return all;
  }

  /// Operations per timing: in a graph many, to amortise one-time costs such as ranks that start one after the other.
  [[nodiscard]] int times(const DeviceSystem& system) const {
    return system.alternates() ? 1 : std::max(config_.graph, 1);
  }

  void capture(DeviceSystem& system) {
    const auto add = [&](const std::string& name, int times, const std::function<void()>& work) {
      graphs_[name] = std::make_unique<device::CapturedGraph>(stream(), [&] { repeat(times, work); });
    };
    if (!system.alternates())  // else dispatch and combine must be in the same graph
      for (const auto& [name, work] : operations_of(system)) add(name, times(system), work);
    add(kPairs, config_.graph, [&] {
      system.plan();
      system.dispatch();
      system.combine();
    });
    if (config_.low_latency)
      add(kStampedPairs, config_.graph, [&] {
        stamps_.put(stream());
        system.plan();
        system.dispatch();
        stamps_.put(stream());
        system.combine();
        stamps_.put(stream());
      });
    world_.barrier();
  }

  /// Adds up this rank's times, which include waits for other ranks; the slowest rank's sum is reported.
  void record_stamps() {
    const std::vector<std::uint64_t> times = stamps_.read(stream());
    double dispatch_ns = 0, combine_ns = 0;
    for (std::size_t pair = 0; pair < times.size(); pair += kStampsPerPair) {
      dispatch_ns += static_cast<double>(times[pair + 1] - times[pair]);
      combine_ns += static_cast<double>(times[pair + 2] - times[pair + 1]);
    }
    timings_.record(kStampedDispatch, 0, dispatch_ns / 1e6);
    timings_.record(kStampedCombine, 0, combine_ns / 1e6);
  }

  static void repeat(int times, const std::function<void()>& work) {
    for (int i = 0; i < times; ++i) work();
  }

  void measure_once() {
    for (const auto& system : systems_) {
      for (const Operation& operation : operations_of(*system)) {
        const auto graph = graphs_.find(operation.name);
        clock_.time(timings_, operation.name, [&] {
          if (graph != graphs_.end()) return graph->second->replay();
          repeat(times(*system), operation.work);
        });
      }
      measure_kernels(*system);
    }
    if (config_.graph > 0) clock_.time(timings_, kPairs, [&] { graphs_.at(kPairs)->replay(); });
    if (config_.low_latency) {
      clock_.time(timings_, kStampedPairs, [&] { graphs_.at(kStampedPairs)->replay(); });
      record_stamps();
    }
    if (few_sms_) few_sms_->measure_stores(timings_, to_.get(), copied_bytes_);
    clock_all_sms_.time(timings_, "memcpy", [&] { copy(); });
    clock_all_sms_.time(timings_, "kernel copy", [&] {
      device::launch(device::CopyBytes{from_.get(), to_.get(), copied_bytes_}, all_sms());
    });
    clock_all_sms_.time(timings_, "write",
                        [&] { device::check(cudaMemsetAsync(to_.get(), 0x5a, copied_bytes_, all_sms()), "write"); });
  }

  void measure_kernels(DeviceSystem& system) {
    if (!system.has_kernels()) return;
    clock_.time(timings_, system.name() + " dispatch kernel", [&] { system.dispatch_kernel(); });
    clock_.time(timings_, system.name() + " combine kernel", [&] { system.combine_kernel(); });
  }

  void summarise() {
    result_.routing = workload_.figures();
    result_.pruning = workload_.pruning();
    const auto tokens = static_cast<std::uint64_t>(config_.tokens) * static_cast<std::uint64_t>(config_.ranks);
    std::uint64_t combined_bytes = 0;  // of shunt
    for (const auto& system : systems_) {
      const auto counts = workload_.count_rows(system->kind().layout == Layout::token_unique);
      SystemResult& result = result_.systems.emplace_back();
      result.name = system->name();
      const auto of_one = [&](const char* operation) {
        return timings_.median(result.name + operation) / times(*system);
      };
      result.plan_ms = of_one(" plan");
      result.dispatch_ms = of_one(" dispatch");
      result.combine_ms = of_one(" combine");
      if (system->has_kernels()) {
        result.dispatch_kernel_ms = timings_.median(result.name + " dispatch kernel");
        result.combine_kernel_ms = timings_.median(result.name + " combine kernel");
      }
      if (!system->alternates()) result.planned_dispatch_ms = of_one(" planned dispatch");
      result.wire_bytes = counts.between_ranks * config_.row_bytes();
      result.cross_node_bytes = counts.between_nodes * config_.row_bytes();
      // Tokens are read in their own dtype, which is wider than the written one if rows are quantised.
      const std::uint64_t row_bytes = system->rows().row_bytes() + system->scales().row_bytes();
      const std::uint64_t rows = system->rows_touched(tokens, counts.delivered);
      result.moved_bytes = rows * row_bytes + tokens * (x_.row_bytes() - row_bytes);
      if (system == systems_.front()) combined_bytes = rows * x_.row_bytes();
    }
    const auto gbps = [&](const std::string& name, std::size_t times) {
      return static_cast<double>(copied_bytes_ * times) * config_.ranks / timings_.median(name) / 1e6;
    };
    result_.copy_ceiling_gbps = std::max(gbps("memcpy", 2), gbps("kernel copy", 2));
    result_.write_ceiling_gbps = gbps("write", 1);
    const SystemResult& shunt = result_.systems.front();
    const auto efficiency = [&](std::uint64_t bytes, double ms) {
      return static_cast<double>(bytes) / ms / 1e6 / result_.copy_ceiling_gbps;
    };
    result_.dispatch_efficiency = efficiency(shunt.moved_bytes, shunt.dispatch_ms);
    if (shunt.planned_dispatch_ms > 0)
      result_.planned_dispatch_efficiency = efficiency(shunt.moved_bytes, shunt.planned_dispatch_ms);
    if (shunt.dispatch_kernel_ms > 0) {
      result_.dispatch_kernel_efficiency = efficiency(shunt.moved_bytes, shunt.dispatch_kernel_ms);
      result_.combine_kernel_efficiency = efficiency(combined_bytes, shunt.combine_kernel_ms);
    }
    const auto of_pair = [&](const std::string& name) { return timings_.median(name) / config_.graph; };
    if (config_.graph > 0) result_.pair_ms = of_pair(kPairs);
    if (config_.low_latency) {
      result_.graph_dispatch_ms = of_pair(kStampedDispatch);
      result_.graph_combine_ms = of_pair(kStampedCombine);
      result_.stamped_pair_ms = of_pair(kStampedPairs);
    }
    result_.combine_efficiency = efficiency(combined_bytes, shunt.combine_ms);
    if (few_sms_) {
      const auto counts = workload_.count_rows(config_.layout == Layout::token_unique);
      result_.few_sms =
          few_sms_->summarise(timings_, copied_bytes_, shunt,
                              static_cast<double>(counts.delivered * config_.row_bytes()), result_.copy_ceiling_gbps);
    }
  }

  World& world_;
  const ShuffleConfig& config_;
  Streams streams_;
  Workload workload_;
  Tensor x_;
  DeviceClock clock_;
  DeviceClock clock_all_sms_;
  std::size_t copied_bytes_;
  std::shared_ptr<std::byte> from_;
  std::shared_ptr<std::byte> to_;
  std::vector<std::unique_ptr<DeviceSystem>> systems_;
  static constexpr std::size_t kStampsPerPair = 3;
  Stamps stamps_{kStampsPerPair * static_cast<std::size_t>(config_.graph)};
  std::map<std::string, std::unique_ptr<device::CapturedGraph>> graphs_;  // of shunt's operations, by name
  std::optional<FewSms> few_sms_;
  Timings timings_;
  ShuffleResult result_;
};

}  // namespace

ShuffleResult measure_on_device(World& world, const ShuffleConfig& config) {
  return DeviceBenchmark(world, config).run();
}

void prepare_device() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  device::check(cudaGetDeviceCount(&count), "find a device");
}

}  // namespace shunt::bench
