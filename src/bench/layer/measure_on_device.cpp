#include "bench/layer/measure.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "bench/device/clock.hpp"
#include "bench/device/engine.hpp"
#include "bench/device/kernels.hpp"
#include "bench/device/memory.hpp"
#include "bench/layer/device_experts.hpp"
#include "bench/ranks.hpp"
#include "bench/shuffle/workload.hpp"
#include "bench/verifier.hpp"
#include "core/cuda/captured_graph.hpp"
#include "core/cuda/stream.hpp"
#include "core/fail.hpp"
#include "kernels/cuda/mlp/matmul.hpp"
#include "kernels/cuda/mlp/tiles.hpp"
#include "shunt/pruning.hpp"

namespace shunt::bench {
namespace {

/// The experts' products as if all rows had one expert: the upper bound for a library.
class DenseProducts {
 public:
  DenseProducts(const LayerConfig& config, std::int64_t rows, const device::ExpertWeights& weights, Stream stream)
      : weights_(weights),
        x_(tensor_on_device(config.shuffle.dtype, rows, config.shuffle.hidden)),
        inner_(tensor_on_device(config.shuffle.dtype, rows, 2 * config.ffn)),
        y_(tensor_on_device(config.shuffle.dtype, rows, config.shuffle.hidden)),
        gate_up_(shape_of(x_, x_.cols, inner_)),
        down_(shape_of(inner_, config.ffn, y_)) {
    fill_with_random_values(x_.data, static_cast<std::size_t>(rows * x_.cols), x_.dtype, 2.0f, 0, stream);
    run(stream);
  }

  void run(Stream stream) const {
    gate_up_.run(weights_.gate_up, x_.data, inner_.data, stream);
    down_.run(weights_.down, inner_.data, y_.data, stream);
  }

 private:
  static device::MatmulShape shape_of(const Tensor& x, std::int64_t inputs, const Tensor& y) {
    return {.dtype = x.dtype, .rows = x.rows, .inputs = inputs, .outputs = y.cols, .x_stride = x.cols, .batch = 0};
  }

  device::ExpertWeights weights_;
  Tensor x_, inner_, y_;
  device::Matmul gate_up_, down_;
};

/// This rank's tokens before pruning, and the pruner, in device memory.
class PrunedOnDevice {
 public:
  PrunedOnDevice(const ShuffleConfig& config, const Workload& workload, const ExpertMap& map, RankId self)
      : PrunedOnDevice(config, TokenPruning(config, workload.model()), workload.unpruned_routing(self.index()), map,
                       self) {}

  void run(const UploadedRouting& to, Stream stream) {
    pruner_.prune(routing_.view(), scores_.get(), to.experts().data(), to.weights().data(), stream);
  }

 private:
  PrunedOnDevice(const ShuffleConfig& config, const TokenPruning& pruning, const RankRouting& routing,
                 const ExpertMap& map, RankId self)
      : routing_(routing, config.topk),
        pruner_(map, config.topology(), pruning.options(self), config.tokens, device_memory()) {
    if (pruning.has_scores()) scores_ = upload(std::span<const float>(pruning.scores(self)));
  }

  UploadedRouting routing_;
  std::shared_ptr<float> scores_;
  Pruner pruner_;
};

class LayerBenchmark {
 public:
  LayerBenchmark(World& world, const LayerConfig& config)
      : world_(world),
        config_(config),
        shuffle_(config.shuffle),
        workload_(shuffle_),
        demand_(LayerDemand::of(shuffle_, workload_, rank(), device::kTileRows)),
        map_(shuffle_.map()),
        max_rows_(is_unique() ? demand_.most_unique_rows : demand_.most_aligned_rows),
        weights_(make_weights()),
        x_(upload(workload_.tokens(rank()))),
        routing_(workload_.routing(rank()), shuffle_.topk),
        engine_(make_device_engine(world, shuffle_, heap_bytes(shuffle_, max_rows_), stream_.get())) {
    if (shuffle_.prune.limit) pruned_ = std::make_unique<PrunedOnDevice>(shuffle_, workload_, map_, world.rank());
    world.barrier();  // allocating memory may wait for the device, so no rank may be in a barrier there
    rows_ = engine_.allocate(shuffle_.dtype, max_rows_, shuffle_.hidden);
    plan();
    (void)plan_.read();  // throws the Error of a device fault
    expert_out_ = engine_.allocate(shuffle_.dtype, max_rows_, shuffle_.hidden);
    result_ = engine_.allocate(shuffle_.dtype, shuffle_.tokens, shuffle_.hidden);
    world.barrier();  // allocating memory may wait for the device, so no rank may be in a barrier there
    experts_ = make_layer_experts(config, demand_, plan_, view(weights_), stream_.get());
    dense_ = std::make_unique<DenseProducts>(config, demand_.most_rows, view(weights_), stream_.get());
    clock_ = std::make_unique<DeviceClock>(world, stream_.get());
    finish();
    world.barrier();
  }

  LayerResult run() {
    result_so_far_.name = to_string(shuffle_.layout);
    const std::vector<std::byte> first = verify();
    if (shuffle_.graph > 0) {
      graph_ = std::make_unique<device::CapturedGraph>(stream_.get(), [&] {
        for (int i = 0; i < shuffle_.graph; ++i) layer();
      });
      world_.barrier();
    }
    for (int i = -shuffle_.warmup; i < shuffle_.iterations; ++i) {
      if (i == 0) timings_.clear();
      measure_once();
    }
    engine_.check();
    experts_->check();
    if (download(result_) != first)
      fail(ErrorCode::internal, "rank {}: the result differs from that of the first run", rank());
    timings_.take_slowest(world_);
    summarise();
    world_.barrier();  // other ranks may still use this rank's memory
    return result_so_far_;
  }

 private:
  struct Weights {
    Tensor gate_up;
    Tensor down;
  };

  [[nodiscard]] std::size_t rank() const { return world_.rank().index(); }
  [[nodiscard]] bool is_unique() const { return shuffle_.layout == Layout::token_unique; }
  static device::ExpertWeights view(const Weights& weights) { return {weights.gate_up.data, weights.down.data}; }

  // The same for all copies of an expert, and scaled so that products keep the magnitude of elements.
  Weights make_weights() {
    const std::int32_t experts = map_.num_local(world_.rank());
    const auto make = [&](std::int64_t outputs, std::int64_t inputs, std::uint64_t which) {
      const Tensor tensor = tensor_on_device(shuffle_.dtype, experts * outputs, inputs);
      for (std::int32_t local = 0; local < experts; ++local) {
        const ExpertId expert = map_.logical(PhysicalId(map_.first_physical(world_.rank()).value + local));
        fill_with_random_values(tensor.row(local * outputs), static_cast<std::size_t>(outputs * inputs), tensor.dtype,
                                std::sqrt(3.0f / static_cast<float>(inputs)),
                                (shuffle_.seed * 1'000'003 + expert.index() * 2 + which) << 40, stream_.get());
      }
      return tensor;
    };
    return {make(2 * config_.ffn, shuffle_.hidden, 0), make(shuffle_.hidden, config_.ffn, 1)};
  }

  void finish() const { device::check(cudaStreamSynchronize(stream_.get()), "finish"); }

  [[nodiscard]] std::vector<std::byte> download(const Tensor& tensor) const {
    return bench::download(tensor.data, tensor.bytes(), stream_.get());
  }

  /// Prunes on the device; check_routing() compares the result with the host's.
  void prune() {
    if (pruned_) pruned_->run(routing_, stream_.get());
  }
  void plan() {
    plan_ = {};  // so that its memory can be reused
    plan_ = engine_.plan(routing_.view(), map_,
                         {.layout = shuffle_.layout,
                          .alignment = is_unique() ? 1 : device::kTileRows,
                          .max_rows = max_rows_,
                          .rows = rows_});
  }
  void dispatch() { (void)engine_.dispatch(plan_, x_); }
  void experts() { experts_->run(plan_, rows_, expert_out_); }
  void combine() { (void)engine_.combine(plan_, expert_out_, {.out = result_}); }
  void layer() {
    prune();
    plan();
    dispatch();
    experts();
    combine();
  }

  /// Runs the layer once, compares some tokens with the host's, and returns the result.
  std::vector<std::byte> verify() {
    const auto poison = [&](void* data, std::size_t bytes) {
      device::check(cudaMemsetAsync(data, 0xa5, bytes, stream_.get()), "poison");
    };
    for (const Tensor& tensor : {rows_, expert_out_, result_}) poison(tensor.data, tensor.bytes());
    if (pruned_) poison(routing_.experts().data(), routing_.experts().size_bytes());
    finish();
    world_.barrier();  // no rank may write rows before they are poisoned
    layer();
    const std::vector<std::byte> result = download(result_);
    check_routing();
    engine_.check();
    experts_->check();
    world_.barrier();  // copies to the host must not queue behind a device barrier
    const auto weights_of_ranks = gather_values(world_, view(weights_));
    const TokenCheck check(shuffle_, workload_, rank(),
                           [&](std::int32_t expert) { return download_expert(weights_of_ranks, expert); });
    result_so_far_.largest_error =
        check.largest_error(result_so_far_.name, workload_.routing(rank()), result, config_.verified);
    world_.barrier();
    return result;
  }

  /// Compares the routing pruned on the device with the one pruned on the host.
  void check_routing() const {
    const RankRouting& expected = workload_.routing(rank());
    const auto is_same = [&](const auto& device, const auto& host) {
      const auto there = bench::download(device.data(), device.size(), stream_.get());
      return std::ranges::equal(std::as_bytes(std::span(there)), std::as_bytes(std::span(host)));
    };
    if (!is_same(routing_.experts(), expected.experts) || !is_same(routing_.weights(), expected.weights))
      fail(ErrorCode::internal, "rank {}: the routing that the device pruned differs from the host's", rank());
  }

  [[nodiscard]] ReferenceExpert download_expert(const std::vector<device::ExpertWeights>& weights_of_ranks,
                                                std::int32_t expert) const {
    const PhysicalId copy = map_.copies(ExpertId(expert)).front();
    const RankId owner = map_.rank(copy);
    const std::size_t local = copy.index() - map_.first_physical(owner).index();
    const auto download_matrix = [&](const std::byte* matrices, std::int64_t count) {
      const auto matrix_bytes = static_cast<std::size_t>(count) * size_of(shuffle_.dtype);
      return widened(bench::download(matrices + local * matrix_bytes, matrix_bytes, stream_.get()), shuffle_.dtype);
    };
    const device::ExpertWeights& weights = weights_of_ranks[owner.index()];
    return {shuffle_.hidden, config_.ffn, shuffle_.dtype,
            download_matrix(weights.gate_up, 2 * config_.ffn * shuffle_.hidden),
            download_matrix(weights.down, shuffle_.hidden * config_.ffn)};
  }

  void measure_once() {
    if (pruned_) clock_->time(timings_, "prune", [&] { prune(); });
    clock_->time(timings_, "plan", [&] { plan(); });
    clock_->time(timings_, "dispatch", [&] { dispatch(); });
    clock_->time(timings_, "experts", [&] { experts(); });
    clock_->time(timings_, "combine", [&] { combine(); });
    clock_->time(timings_, "layer", [&] { layer(); });
    if (graph_) clock_->time(timings_, "graph", [&] { graph_->replay(); });
    clock_->time(timings_, "dense", [&] { dense_->run(stream_.get()); });
  }

  void summarise() {
    LayerResult& result = result_so_far_;
    result.routing = workload_.figures();
    result.pruning = workload_.pruning();
    if (pruned_) result.prune_ms = timings_.median("prune");
    result.plan_ms = timings_.median("plan");
    result.dispatch_ms = timings_.median("dispatch");
    result.experts_ms = timings_.median("experts");
    result.combine_ms = timings_.median("combine");
    result.layer_ms = timings_.median("layer");
    if (graph_) result.graph_layer_ms = timings_.median("graph") / shuffle_.graph;
    result.dense_ms = timings_.median("dense");
    result.rows = demand_.rows;
    const auto computed = gather_values(world_, experts_->rows_computed());
    result.rows_computed = std::accumulate(computed.begin(), computed.end(), std::int64_t{0});
    const auto errors = gather_values(world_, result.largest_error);
    result.largest_error = *std::max_element(errors.begin(), errors.end());
    result.tflops = config_.flop(demand_.rows) / result.experts_ms / 1e9;
    result.dense_tflops = config_.flop(demand_.most_rows * shuffle_.ranks) / result.dense_ms / 1e9;
    const double shuffled = result.plan_ms + result.dispatch_ms + result.combine_ms;
    result.shuffle_share = shuffled / (shuffled + result.experts_ms);
    result.rows_bytes = rows_.bytes();
    result.workspace_bytes = experts_->workspace_bytes();
    result.copies_bytes = static_cast<std::size_t>(demand_.most_rows) * rows_.row_bytes();
  }

  World& world_;
  const LayerConfig& config_;
  const ShuffleConfig& shuffle_;
  std::shared_ptr<CUstream_st> stream_ = device::make_stream();
  Workload workload_;
  LayerDemand demand_;
  ExpertMap map_;
  std::int64_t max_rows_;
  Weights weights_;
  Tensor x_;
  UploadedRouting routing_;
  Engine engine_;
  std::unique_ptr<PrunedOnDevice> pruned_;  // null: no pruning
  Plan plan_;
  Tensor rows_, expert_out_, result_;
  std::unique_ptr<LayerExperts> experts_;
  std::unique_ptr<DenseProducts> dense_;
  std::unique_ptr<DeviceClock> clock_;
  std::unique_ptr<device::CapturedGraph> graph_;
  Timings timings_;
  LayerResult result_so_far_;
};

/// Device memory of all ranks: weights, rows and expert outputs, dense products, workspace. A skewed routing needs
/// more.
double device_bytes(const LayerConfig& config) {
  const ShuffleConfig& shuffle = config.shuffle;
  const double experts = shuffle.map().num_physical();
  const double rows = static_cast<double>(shuffle.tokens) * shuffle.ranks * shuffle.topk + experts * device::kTileRows;
  const double weights = 3.0 * experts * static_cast<double>(shuffle.hidden * config.ffn);
  const double per_row = static_cast<double>(4 * shuffle.hidden + 4 * config.ffn);
  return (weights + rows * per_row) * static_cast<double>(size_of(shuffle.dtype));
}

}  // namespace

LayerResult measure_layer(World& world, const LayerConfig& config) { return LayerBenchmark(world, config).run(); }

// Modules are loaded lazily, because cuBLASLt has half a gigabyte of them.
void prepare_layer(const LayerConfig& config) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;
  device::check(cudaGetDeviceCount(&count), "find a device");
  constexpr std::int32_t kMostRanks = 32;
  if (config.shuffle.ranks > kMostRanks)
    fail(ErrorCode::unsupported, "bench layer: at most {} ranks share a device", kMostRanks);
  device::load_matmul();
  std::size_t free_bytes = 0;
  std::size_t all_bytes = 0;
  device::check(cudaMemGetInfo(&free_bytes, &all_bytes), "find out how much memory is free");
  if (const double needed = device_bytes(config); needed > static_cast<double>(free_bytes))
    fail(ErrorCode::invalid_argument,
         "would take about {:.1f} GiB of device memory, of which {:.1f} are free: lower --tokens, --hidden, --ffn, "
         "--experts, --topk or --ranks",
         needed / (1 << 30), static_cast<double>(free_bytes) / (1 << 30));
}

}  // namespace shunt::bench
