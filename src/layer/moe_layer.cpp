#include "layer/moe_layer.hpp"

#include <numeric>
#include <optional>

#include "core/fail.hpp"
#include "shunt/engine.hpp"

namespace shunt {
namespace {

constexpr LayerWay kWays[] = {LayerWay::conventional, LayerWay::expert_major, LayerWay::token_unique};

void check_map(const ExpertMap& map, const World& world, const ExpertWeights& weights) {
  if (map.num_ranks() != world.size())
    fail(ErrorCode::invalid_argument, "the map is for {} ranks, the world has {}", map.num_ranks(), world.size());
  if (static_cast<std::size_t>(map.num_local(world.rank())) != weights.experts.size())
    fail(ErrorCode::invalid_argument, "rank {}: the map gives it {} experts, it has weights of {}", world.rank(),
         map.num_local(world.rank()), weights.experts.size());
}

/// A layer over shunt's shuffle, in either layout.
class FusedLayer final : public MoeLayer {
 public:
  FusedLayer(World& world, Layout layout, ExpertWeights weights, const ExpertsOptions& options)
      : world_(world),
        layout_(layout),
        experts_(std::move(weights), options),
        engine_(world, {.hidden = experts_.weights().hidden, .dtype = experts_.weights().dtype}) {}

  void plan(const Routing& routing, const ExpertMap& map) override {
    check_map(map, world_, experts_.weights());
    PlanOptions options;
    options.layout = layout_;
    plan_ = engine_.plan(routing, map, options);
  }

  // The previous rows are released first, so that the pool reuses the same pages.
  void dispatch(const ConstTensor& x) override {
    rows_ = {};
    rows_ = engine_.dispatch(plan_, x).wait();
  }

  void experts() override {
    if (!expert_out_.data || expert_out_.rows != plan_.num_rows()) expert_out_ = engine_.expert_out(plan_);
    experts_.run(plan_, rows_.data, expert_out_);
  }

  ConstTensor combine() override {
    result_ = {};
    result_ = engine_.combine(plan_, expert_out_).wait();
    return result_;
  }

  [[nodiscard]] std::int64_t num_rows() const override { return plan_.num_rows(); }
  [[nodiscard]] std::int64_t num_expert_rows() const override { return plan_.num_expert_rows(); }
  [[nodiscard]] SentBytes sent_bytes() const override {
    const ExpertWeights& weights = experts_.weights();
    const Traffic traffic = plan_.traffic(static_cast<std::size_t>(weights.hidden) * size_of(weights.dtype));
    return {traffic.between_ranks_bytes, traffic.between_nodes_bytes};
  }
  [[nodiscard]] std::size_t workspace_bytes() const override { return experts_.workspace_bytes(); }

 private:
  World& world_;
  Layout layout_;
  Experts experts_;
  Engine engine_;
  Plan plan_;
  Rows rows_;
  Tensor expert_out_;
  Tensor result_;
};

class ConventionalLayer final : public MoeLayer {
 public:
  ConventionalLayer(World& world, ExpertWeights weights, const ExpertsOptions& options)
      : world_(world), experts_(std::move(weights), options) {
    const ExpertWeights& held = experts_.weights();
    all_to_all_ = make_engine_all_to_all(world, held.hidden, held.dtype);
  }

  void plan(const Routing& routing, const ExpertMap& map) override {
    const ExpertWeights& weights = experts_.weights();
    check_map(map, world_, weights);
    map_ = map;
    const auto row_bytes = static_cast<std::size_t>(weights.hidden) * size_of(weights.dtype);
    if (!exchange_)  // the first routing determines how permutes write; later ones keep the buffers
      exchange_.emplace(world_.rank(), world_.topology(), all_to_all_,
                        ExchangeOptions{.hidden = weights.hidden,
                                        .dtype = weights.dtype,
                                        .store = choose_store(routing.experts.size() * row_bytes)});
    exchange_->plan(routing, map);
  }
  void dispatch(const ConstTensor& x) override { rows_ = exchange_->dispatch(x); }
  void experts() override {
    experts_.run(exchange_->expert_offsets(), exchange_->expert_counts(), rows_, exchange_->expert_out());
  }
  ConstTensor combine() override { return exchange_->combine(); }

  [[nodiscard]] std::int64_t num_rows() const override {
    const auto counts = exchange_->expert_counts();
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  [[nodiscard]] std::int64_t num_expert_rows() const override { return num_rows(); }
  [[nodiscard]] SentBytes sent_bytes() const override { return exchange_->sent_bytes(*map_); }
  [[nodiscard]] std::size_t workspace_bytes() const override { return experts_.workspace_bytes(); }

 private:
  World& world_;
  Experts experts_;
  std::shared_ptr<AllToAll> all_to_all_;
  std::optional<ExpertMap> map_;
  std::optional<ConventionalExchange> exchange_;
  ConstTensor rows_;
};

}  // namespace

std::string_view to_string(LayerWay way) {
  switch (way) {
    case LayerWay::conventional: return "conventional";
    case LayerWay::expert_major: return "expert_major";
    case LayerWay::token_unique: return "token_unique";
  }
  return "";
}

LayerWay parse_layer_way(std::string_view name) {
  for (const LayerWay way : kWays)
    if (to_string(way) == name) return way;
  fail(ErrorCode::invalid_argument, "'{}': expected conventional, expert_major or token_unique", name);
}

std::unique_ptr<MoeLayer> make_moe_layer(World& world, LayerWay way, ExpertWeights weights,
                                         const ExpertsOptions& options) {
  if (way == LayerWay::conventional) return std::make_unique<ConventionalLayer>(world, std::move(weights), options);
  const Layout layout = way == LayerWay::expert_major ? Layout::expert_major : Layout::token_unique;
  return std::make_unique<FusedLayer>(world, layout, std::move(weights), options);
}

}  // namespace shunt
