#include "bench/layer/measure.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "bench/layer/config.hpp"
#include "bench/layer/random_experts.hpp"
#include "bench/ranks.hpp"
#include "bench/timings.hpp"
#include "bench/verifier.hpp"
#include "core/fail.hpp"
#include "layer/moe_layer.hpp"

namespace shunt::bench {
namespace {

/// The experts' products as if all rows had one expert: the upper bound for the library.
class DenseProducts {
 public:
  DenseProducts(const LayerConfig& config, std::int64_t rows, const ExpertMatrices& matrices)
      : rows_(rows),
        gate_up_(config.shuffle.dtype, config.shuffle.hidden, 2 * config.ffn),
        down_(config.shuffle.dtype, config.ffn, config.shuffle.hidden) {
    const auto elements = [&](std::int64_t cols) {
      return static_cast<std::size_t>(std::min(rows, kRowsAtOnce) * cols) * size_of(config.shuffle.dtype);
    };
    x_.reserve(elements(config.shuffle.hidden));
    inner_.reserve(elements(2 * config.ffn));
    y_.reserve(elements(config.shuffle.hidden));
    gate_up_.load(matrices.gate_up);
    down_.load(matrices.down);
  }

  void run() {
    for (std::int64_t first = 0; first < rows_; first += kRowsAtOnce) {
      const std::int64_t rows = std::min(kRowsAtOnce, rows_ - first);
      gate_up_.run(x_.data(), inner_.data(), rows);
      down_.run(inner_.data(), y_.data(), rows);
    }
  }

 private:
  static constexpr std::int64_t kRowsAtOnce = 4096;  // longer products are no faster

  std::int64_t rows_;
  Product gate_up_, down_;
  AlignedBuffer x_, inner_, y_;
};

/// A variant with its layer, times and result.
struct MeasuredVariant {
  LayerVariant variant;
  std::unique_ptr<MoeLayer> layer;
  PartTimes times{};
  std::vector<std::byte> first_result{};
  LayerResult result{};
};

class HostLayerBenchmark {
 public:
  HostLayerBenchmark(World& world, const LayerConfig& config)
      : world_(world),
        config_(config),
        workload_(config.unplaced()),
        random_experts_(config),
        tokens_(workload_.tokens(world.rank().index())) {
    for (LayerVariant& variant : make_variants(config, workload_, world.rank().index())) {
      progress("making weights");
      auto layer = make_moe_layer(world, variant.way, random_experts_.of_rank(variant.map, world.rank()));
      variants_.push_back({std::move(variant), std::move(layer)});
    }
  }

  std::vector<LayerResult> run() {
    for (MeasuredVariant& measured : variants_) verify(measured);
    const std::int64_t most_rows = most_of_ranks(variants_.front().layer->num_expert_rows());
    if (most_rows == 0)
      fail(ErrorCode::invalid_argument, "--routing {}: no token has an expert", config_.shuffle.routing);
    dense_ = std::make_unique<DenseProducts>(config_, most_rows, random_experts_.of_expert(0));
    for (int i = -config_.shuffle.warmup; i < config_.shuffle.iterations; ++i) {
      if (i == 0) {
        dense_times_.clear();
        for (MeasuredVariant& measured : variants_) measured.times.clear();
      }
      progress(fmt::format("iteration {} of {}", std::max(i + 1, 0), config_.shuffle.iterations));
      for (MeasuredVariant& measured : variants_) measure_once(measured);
      dense_times_.time(world_, "dense", [&] { dense_->run(); });
    }
    progress("");
    dense_times_.take_slowest(world_);
    std::vector<LayerResult> results;
    for (MeasuredVariant& measured : variants_) measured.times.take_slowest(world_);
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      LayerResult& result = variants_[i].result;
      summarise(variants_[i], most_rows);
      result.speedup = speedup_over(variants_.front(), variants_[i]);
      if (i > 0) result.over_previous = speedup_over(variants_[i - 1], variants_[i]);
      results.push_back(result);
    }
    return results;
  }

 private:
  [[nodiscard]] std::int64_t most_of_ranks(std::int64_t mine) const {
    const auto all = gather_values(world_, mine);
    return *std::max_element(all.begin(), all.end());
  }

  [[nodiscard]] std::span<const std::byte> run_layer(MeasuredVariant& measured, PartTimes::Ends& ends) {
    const LayerVariant& variant = measured.variant;
    MoeLayer& layer = *measured.layer;
    const double start = now_ms();
    layer.plan(variant.routing.view(config_.shuffle.topk), variant.map);
    ends[0] = now_ms() - start;
    layer.dispatch(tokens_);
    ends[1] = now_ms() - start;
    layer.experts();
    ends[2] = now_ms() - start;
    const ConstTensor result = layer.combine();
    ends[3] = now_ms() - start;
    return {result.data, result.bytes()};
  }

  void verify(MeasuredVariant& measured) {
    progress("verifying " + measured.variant.name);
    PartTimes::Ends ends{};
    const std::span<const std::byte> result = run_layer(measured, ends);
    measured.first_result.assign(result.begin(), result.end());
    const TokenCheck check(config_.shuffle, workload_, world_.rank().index(),
                           [&](std::int32_t expert) { return random_experts_.reference(expert); });
    measured.result.largest_error =
        check.largest_error(measured.variant.name, measured.variant.routing, result, config_.verified);
  }

  void measure_once(MeasuredVariant& measured) {
    world_.barrier();
    PartTimes::Ends ends{};
    const std::span<const std::byte> result = run_layer(measured, ends);
    measured.times.add(ends);
    if (!std::equal(result.begin(), result.end(), measured.first_result.begin(), measured.first_result.end()))
      fail(ErrorCode::internal, "{}, rank {}: the result differs from that of the first run", measured.variant.name,
           world_.rank());
  }

  static Speedup speedup_over(const MeasuredVariant& other, const MeasuredVariant& measured) {
    const std::vector<double> ratios = measured.times.speedups_over(other.times);
    return {other.variant.name, median(ratios), *std::min_element(ratios.begin(), ratios.end()),
            *std::max_element(ratios.begin(), ratios.end())};
  }

  void summarise(MeasuredVariant& measured, std::int64_t dense_rows) {
    const MoeLayer& layer = *measured.layer;
    const PartTimes& times = measured.times;
    LayerResult& result = measured.result;
    result.name = measured.variant.name;
    result.plan_ms = times.median_of(LayerPart::plan);
    result.dispatch_ms = times.median_of(LayerPart::dispatch);
    result.experts_ms = times.median_of(LayerPart::experts);
    result.combine_ms = times.median_of(LayerPart::combine);
    result.layer_ms = times.median();
    result.dense_ms = dense_times_.median("dense");
    const auto rows = gather_values(world_, layer.num_expert_rows());
    result.rows = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    result.rows_computed = result.rows;  // blocks are not padded
    result.tflops = config_.flop(result.rows) / result.experts_ms / 1e9;
    result.dense_tflops = config_.flop(dense_rows * config_.shuffle.ranks) / result.dense_ms / 1e9;
    const double shuffled = result.plan_ms + result.dispatch_ms + result.combine_ms;
    result.shuffle_share = shuffled / (shuffled + result.experts_ms);
    result.routing = measured.variant.figures;
    result.pruning = measured.variant.pruning;
    const SentBytes sent = layer.sent_bytes();
    result.wire_bytes = sent.between_ranks;
    result.cross_node_bytes = sent.between_nodes;
    const auto row_bytes = static_cast<std::int64_t>(config_.shuffle.row_bytes());
    result.rows_bytes = static_cast<std::size_t>(most_of_ranks(layer.num_rows()) * row_bytes);
    result.workspace_bytes =
        static_cast<std::size_t>(most_of_ranks(static_cast<std::int64_t>(layer.workspace_bytes())));
    result.copies_bytes = static_cast<std::size_t>(most_of_ranks(layer.num_expert_rows()) * row_bytes);
    const auto errors = gather_values(world_, result.largest_error);
    result.largest_error = *std::max_element(errors.begin(), errors.end());
  }

  void progress(const std::string& text) const { show_progress(world_, config_.shuffle.progress, text); }

  World& world_;
  const LayerConfig& config_;
  Workload workload_;
  RandomExperts random_experts_;
  Tensor tokens_;
  std::vector<MeasuredVariant> variants_;
  std::unique_ptr<DenseProducts> dense_;
  Timings dense_times_;
};

}  // namespace

std::vector<LayerResult> measure_layer_on_host(World& world, const LayerConfig& config) {
  return HostLayerBenchmark(world, config).run();
}

#if !SHUNT_HAVE_CUDA

void prepare_layer(const LayerConfig&) {
  fail(ErrorCode::unsupported, "bench layer: this build has no CUDA (SHUNT_CUDA)");
}

LayerResult measure_layer(World&, const LayerConfig& config) {
  prepare_layer(config);
  return {};
}

#endif

}  // namespace shunt::bench
