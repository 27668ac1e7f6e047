#include "bench/shuffle/measure.hpp"

#include <algorithm>
#include <memory>

#include "bench/machine_speed.hpp"
#include "bench/ranks.hpp"
#include "bench/shuffle/systems.hpp"
#include "bench/shuffle/wire.hpp"
#include "bench/shuffle/workload.hpp"
#include "bench/timings.hpp"
#include "core/fail.hpp"
#include "shunt/environment.hpp"

namespace shunt::bench {
namespace {

/// A system with its timing key. A baseline may have variants, of which the better one is reported.
struct MeasuredSystem {
  std::unique_ptr<System> system;
  std::string key;  // unique
  ShuntSystem* shunt = nullptr;
};

class Benchmark {
 public:
  Benchmark(World& world, const ShuffleConfig& config)
      : world_(world),
        config_(config),
        workload_(config),
        tokens_(workload_.tokens(world.rank().index())),
        ceilings_(config.ranks) {
    shunt_ = add_shunt(Forwarders::balanced);
    if (config_.wants("mpi_alltoallv")) {
      if (const std::string why = why_no_mpi(); !why.empty())
        result_.skipped["mpi_alltoallv"] = why;
      else
        add_staged(make_mpi_all_to_all(config_));
    }
    if (config_.wants("unfused")) add_staged(make_engine_all_to_all(world, config_.hidden, config_.expert_dtype()));
    shunt_->plan();
    has_several_machines_ = shunt_->spans_machines();
    if (has_several_machines_ && config_.wants("rotation") && config_.layout != Layout::padded)
      add_shunt(Forwarders::rotated);
    if (!has_several_machines_ || !config_.wants("wire")) return;
    if (Environment::read().network.interface.empty())
      result_.skipped["wire"] = "SHUNT_INTERFACE is not set";
    else
      wire_.emplace(world, shunt_->bytes_to_far());
  }

  ShuffleResult run() {
    verify();
    for (int i = -config_.warmup; i < config_.iterations; ++i) {
      if (i == 0) timings_.clear();
      show_progress(fmt::format("iteration {} of {}", std::max(i + 1, 0), config_.iterations));
      measure_once();
    }
    show_progress("");
    timings_.take_slowest(world_);
    summarise();
    return result_;
  }

 private:
  ShuntSystem* add_shunt(Forwarders forwarders) {
    auto system = std::make_unique<ShuntSystem>(world_, config_, workload_, tokens_, forwarders);
    ShuntSystem* const shunt = system.get();
    systems_.push_back({std::move(system), shunt->name(), shunt});
    return shunt;
  }

  void add_staged(const std::shared_ptr<AllToAll>& all_to_all) {
    for (const Store store : {Store::cached, Store::streaming})
      systems_.push_back({std::make_unique<StagedSystem>(world_, config_, workload_, tokens_, all_to_all, store),
                          all_to_all->name() + (store == Store::cached ? " cached" : " streaming")});
  }

  void verify() {
    for (const MeasuredSystem& measured : systems_) {
      show_progress("verifying " + measured.key);
      const Verifier verifier(config_, workload_, world_.rank().index(), measured.system->kind());
      bench::verify(measured.key, *measured.system, verifier);
    }
  }

  void measure_once() {
    for (const MeasuredSystem& measured : systems_) {
      System& system = *measured.system;
      timings_.time(world_, measured.key + " plan", [&] { system.plan(); });
      timings_.time(world_, measured.key + " dispatch", [&] { (void)system.dispatch(); });
      (void)system.expert_out();
      timings_.time(world_, measured.key + " combine", [&] { (void)system.combine(); });
    }
    if (wire_) {
      timings_.time(world_, "wire dispatch", [&] { wire_->forward(); });
      timings_.time(world_, "wire combine", [&] { wire_->backward(); });
    }
    ceilings_.measure_once(world_, timings_);
  }

  void summarise() {
    result_.routing = workload_.figures();
    result_.pruning = workload_.pruning();
    for (const MeasuredSystem& measured : systems_) summarise(measured);
    if (wire_) {
      SystemResult& wire = result_.systems.emplace_back();
      wire.name = "wire";
      wire.dispatch_ms = timings_.median("wire dispatch");
      wire.combine_ms = timings_.median("wire combine");
      wire.cross_node_bytes = wire.wire_bytes = wire.moved_bytes = result_.systems.front().cross_node_bytes;
    }
    const MachineSpeed speed = ceilings_.speed(timings_);
    result_.copy_ceiling_gbps = std::max(speed.memcpy_gbps, speed.streaming_gbps);
    result_.write_ceiling_gbps = speed.write_gbps;
    result_.read_ceiling_gbps = speed.read_gbps;

    const SystemResult& shunt = result_.systems.front();
    const auto efficiency = [&](std::uint64_t bytes, double ms) {
      return static_cast<double>(bytes) / ms / 1e6 / result_.copy_ceiling_gbps;
    };
    result_.dispatch_efficiency = efficiency(shunt.moved_bytes, shunt.dispatch_ms);
    const auto expert_row_bytes = static_cast<std::uint64_t>(config_.hidden) * size_of(config_.expert_dtype());
    result_.combine_efficiency =
        efficiency(shunt.moved_bytes / config_.row_bytes() * expert_row_bytes, shunt.combine_ms);
  }

  void summarise(const MeasuredSystem& measured) {
    const System& system = *measured.system;
    const auto row_bytes = measured.shunt ? config_.row_bytes() : tokens_.row_bytes();
    const auto counts = workload_.count_rows(system.kind().layout == Layout::token_unique);
    SystemResult result;
    result.name = system.name();
    result.plan_ms = timings_.median(measured.key + " plan");
    result.dispatch_ms = timings_.median(measured.key + " dispatch");
    result.combine_ms = timings_.median(measured.key + " combine");
    result.wire_bytes = counts.between_ranks * row_bytes;
    result.cross_node_bytes = counts.between_nodes * row_bytes;
    if (measured.shunt && has_several_machines_ && config_.layout != Layout::padded) {
      const Traffic traffic = measured.shunt->traffic();
      result.cross_node_bytes = traffic.between_nodes_bytes;
      result.heaviest_link_bytes = traffic.heaviest_link_bytes;
      result_.least_heaviest_link_bytes = traffic.least_heaviest_link_bytes;
    }
    result.moved_bytes =
        system.rows_touched(static_cast<std::uint64_t>(config_.tokens) * static_cast<std::uint64_t>(config_.ranks),
                            counts.delivered) *
        row_bytes;

    if (result_.systems.empty() || result_.systems.back().name != result.name) {
      result_.systems.push_back(result);
    } else {
      SystemResult& better = result_.systems.back();
      better.plan_ms = std::min(better.plan_ms, result.plan_ms);
      better.dispatch_ms = std::min(better.dispatch_ms, result.dispatch_ms);
      better.combine_ms = std::min(better.combine_ms, result.combine_ms);
    }
  }

  void show_progress(const std::string& text) const { bench::show_progress(world_, config_.progress, text); }

  World& world_;
  const ShuffleConfig& config_;
  Workload workload_;
  Tensor tokens_;
  Ceilings ceilings_;
  std::vector<MeasuredSystem> systems_;
  ShuntSystem* shunt_ = nullptr;
  bool has_several_machines_ = false;
  std::optional<Wire> wire_;
  Timings timings_;
  ShuffleResult result_;
};

}  // namespace

ShuffleResult measure(World& world, const ShuffleConfig& config) { return Benchmark(world, config).run(); }

#if !SHUNT_HAVE_CUDA

void prepare_device() { fail(ErrorCode::unsupported, "--device cuda: this build has no CUDA (SHUNT_CUDA)"); }

ShuffleResult measure_on_device(World&, const ShuffleConfig&) {
  prepare_device();
  return {};
}

#endif

}  // namespace shunt::bench
