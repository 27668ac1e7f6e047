#include "cli/device/measure.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "cli/device/clock.hpp"
#include "cli/device/decode_system.hpp"
#include "cli/device/memory.hpp"
#include "cli/device/own_stream.hpp"
#include "cli/device/shunt_system.hpp"
#include "cli/device/unfused_system.hpp"
#include "cli/shuffle/verifier.hpp"
#include "cli/shuffle/workload.hpp"
#include "core/cuda/captured_graph.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/copy_bytes.hpp"

namespace shunt::cli {
namespace {

/// Of both buffers of all ranks: many times the cache of any device.
constexpr std::size_t kCopiedBytes = std::size_t{4} << 30;

class DeviceBenchmark {
 public:
  DeviceBenchmark(World& world, const ShuffleConfig& config)
      : world_(world),
        config_(config),
        workload_(config),
        x_(upload_tokens()),
        clock_(world, own_.stream),
        copied_bytes_(kCopiedBytes / 2 / static_cast<std::size_t>(config.ranks)),
        from_(allocate_on_device(copied_bytes_)),
        to_(allocate_on_device(copied_bytes_)) {
    if (config.layout == Layout::padded)
      systems_.push_back(std::make_unique<DeviceDecodeSystem>(world, config, workload_, x_, own_.stream));
    else
      systems_.push_back(std::make_unique<DeviceShuntSystem>(world, config, workload_, x_, own_.stream));
    if (config.wants("unfused"))
      systems_.push_back(std::make_unique<DeviceUnfusedSystem>(world, config, workload_, x_, own_.stream));
    // What CUDA loads when it is first used must not be loaded behind a gate.
    device::check(cudaMemsetAsync(from_.get(), 0x3c, copied_bytes_, own_.stream), "fill a buffer");
    device::check(cudaMemcpyAsync(to_.get(), from_.get(), copied_bytes_, cudaMemcpyDeviceToDevice, own_.stream),
                  "copy");
    device::launch(device::CopyBytes{from_.get(), to_.get(), copied_bytes_}, own_.stream);
    finish();
    world.barrier();
  }

  ShuffleResult run() {
    for (const auto& system : systems_) verify(*system);
    if (config_.graph > 0) {
      graph_ = std::make_unique<device::CapturedGraph>(own_.stream, [&] {
        for (int pair = 0; pair < config_.graph; ++pair) {
          systems_.front()->plan();
          systems_.front()->dispatch();
          systems_.front()->combine();
        }
      });
      world_.barrier();
    }
    for (int i = -config_.warmup; i < config_.iterations; ++i) {
      if (i == 0) timings_.clear();
      measure_once();
    }
    for (const auto& system : systems_) system->check();
    timings_.take_slowest(world_);
    summarise();
    world_.barrier();  // nobody frees what another still uses
    return result_;
  }

 private:
  Tensor upload_tokens() {
    const Tensor host = workload_.tokens(world_.rank().index());
    const Tensor tensor = tensor_on_device(host.dtype, host.rows, host.cols);
    device::check(cudaMemcpy(tensor.data, host.data, host.bytes(), cudaMemcpyHostToDevice), "upload");
    return tensor;
  }

  void finish() const { device::check(cudaStreamSynchronize(own_.stream), "finish"); }

  [[nodiscard]] std::vector<std::byte> download(const ConstTensor& tensor) const {
    finish();
    std::vector<std::byte> bytes(tensor.bytes());
    device::check(cudaMemcpyAsync(bytes.data(), tensor.data, bytes.size(), cudaMemcpyDeviceToHost, own_.stream),
                  "download");
    finish();
    return bytes;
  }

  void verify(DeviceSystem& system) {
    const Verifier verifier(config_, workload_, world_.rank().index());
    const auto poison = [&](const ConstTensor& tensor) {
      device::check(cudaMemsetAsync(const_cast<std::byte*>(tensor.data), 0xa5, tensor.bytes(), own_.stream), "poison");
    };
    poison(system.rows());
    poison(system.result());
    system.plan();
    system.dispatch();
    finish();
    system.check();
    {
      const auto rows = download(system.rows());
      verifier.check_dispatch(
          system.name(), system.layout(),
          borrow(static_cast<const void*>(rows.data()), system.rows().dtype, system.rows().rows, system.rows().cols),
          {});
    }
    {
      const Tensor expert_out = system.expert_out();
      std::vector<std::byte> host(expert_out.bytes());
      verifier.fill_expert_out(system.layout(),
                               borrow(host.data(), expert_out.dtype, expert_out.rows, expert_out.cols));
      device::check(cudaMemcpyAsync(expert_out.data, host.data(), host.size(), cudaMemcpyHostToDevice, own_.stream),
                    "upload");
      finish();
    }
    world_.barrier();
    system.combine();
    const auto result = download(system.result());
    verifier.check_combine(system.name(), system.layout(), system.order(),
                           borrow(static_cast<const void*>(result.data()), system.result().dtype, system.result().rows,
                                  system.result().cols));
    world_.barrier();
  }

  void measure_once() {
    for (const auto& system : systems_) {
      const std::string name = system->name();
      clock_.time(timings_, name + " plan", [&] { system->plan(); });
      clock_.time(timings_, name + " dispatch", [&] { system->dispatch(); });
      clock_.time(timings_, name + " combine", [&] { system->combine(); });
      measure_kernels(*system);
      if (system->takes_turns()) continue;
      clock_.time(timings_, name + " planned dispatch", [&] {
        system->plan();
        system->dispatch();
      });
    }
    if (graph_) clock_.time(timings_, "graph", [&] { graph_->replay(); });
    clock_.time(timings_, "memcpy", [&] {
      device::check(cudaMemcpyAsync(to_.get(), from_.get(), copied_bytes_, cudaMemcpyDeviceToDevice, own_.stream),
                    "copy");
    });
    clock_.time(timings_, "kernel copy", [&] {
      device::launch(device::CopyBytes{from_.get(), to_.get(), copied_bytes_}, own_.stream);
    });
    clock_.time(timings_, "write",
                [&] { device::check(cudaMemsetAsync(to_.get(), 0x5a, copied_bytes_, own_.stream), "write"); });
  }

  void measure_kernels(DeviceSystem& system) {
    if (!system.has_kernels()) return;
    clock_.time(timings_, system.name() + " dispatch kernel", [&] { system.dispatch_kernel(); });
    clock_.time(timings_, system.name() + " combine kernel", [&] { system.combine_kernel(); });
  }

  void summarise() {
    const auto tokens = static_cast<std::uint64_t>(config_.tokens) * static_cast<std::uint64_t>(config_.ranks);
    for (const auto& system : systems_) {
      const auto counts = workload_.count_rows(system->layout() == Layout::token_unique);
      SystemResult& result = result_.systems.emplace_back();
      result.name = system->name();
      result.plan_ms = timings_.median(result.name + " plan");
      result.dispatch_ms = timings_.median(result.name + " dispatch");
      result.combine_ms = timings_.median(result.name + " combine");
      if (system->has_kernels()) {
        result.dispatch_kernel_ms = timings_.median(result.name + " dispatch kernel");
        result.combine_kernel_ms = timings_.median(result.name + " combine kernel");
      }
      if (!system->takes_turns()) result.planned_dispatch_ms = timings_.median(result.name + " planned dispatch");
      result.wire_bytes = counts.between_ranks * config_.row_bytes();
      result.cross_node_bytes = counts.between_nodes * config_.row_bytes();
      result.moved_bytes = system->rows_touched(tokens, counts.delivered) * config_.row_bytes();
    }
    const auto gbps = [&](const std::string& name, std::size_t times) {
      return static_cast<double>(copied_bytes_ * times) * config_.ranks / timings_.median(name) / 1e6;
    };
    result_.copy_ceiling_gbps = std::max(gbps("memcpy", 2), gbps("kernel copy", 2));
    result_.write_ceiling_gbps = gbps("write", 1);
    const SystemResult& shunt = result_.systems.front();
    const auto efficiency = [&](double ms) {
      return static_cast<double>(shunt.moved_bytes) / ms / 1e6 / result_.copy_ceiling_gbps;
    };
    result_.dispatch_efficiency = efficiency(shunt.dispatch_ms);
    if (shunt.planned_dispatch_ms > 0) result_.planned_dispatch_efficiency = efficiency(shunt.planned_dispatch_ms);
    if (shunt.dispatch_kernel_ms > 0) {
      result_.dispatch_kernel_efficiency = efficiency(shunt.dispatch_kernel_ms);
      result_.combine_kernel_efficiency = efficiency(shunt.combine_kernel_ms);
    }
    if (graph_) result_.pair_ms = timings_.median("graph") / config_.graph;
    result_.combine_efficiency = efficiency(shunt.combine_ms);
  }

  World& world_;
  const ShuffleConfig& config_;
  OwnStream own_;
  Workload workload_;
  Tensor x_;
  DeviceClock clock_;
  std::size_t copied_bytes_;
  std::shared_ptr<std::byte> from_;
  std::shared_ptr<std::byte> to_;
  std::vector<std::unique_ptr<DeviceSystem>> systems_;
  std::unique_ptr<device::CapturedGraph> graph_;  // of shunt's pairs
  Timings timings_;
  ShuffleResult result_;
};

}  // namespace

ShuffleResult measure_on_device(World& world, const ShuffleConfig& config) {
  return DeviceBenchmark(world, config).run();
}

void prepare_device(const ShuffleConfig& config) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  device::check(cudaGetDeviceCount(&count), "find a device");
  constexpr std::int32_t kMostRanks = 32;
  if (config.ranks > kMostRanks)
    fail(ErrorCode::unsupported, "--device cuda: at most {} ranks share a device", kMostRanks);
}

}  // namespace shunt::cli
