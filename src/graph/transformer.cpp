// Builds the graph of a model's training step.
#include <cmath>

#include "core/fail.hpp"
#include "graph/model.hpp"
#include "graph/program.hpp"

namespace shunt::graph {
namespace {

constexpr double kRopeBase = 10000;
constexpr double kEps = 1e-5;

class Transformer {
 public:
  Transformer(const Model& model, std::int32_t ranks) : model_(model), graph_(model.name, ranks) { declare_dims(); }

  Graph build() {
    const ValueId tokens = declared(OpKind::input, "tokens", {Element::i32, {B, S}});
    const ValueId targets = declared(OpKind::input, "targets", {Element::i32, {B, S}});
    const ValueId table = param("embedding", {V, M});
    ValueId x = op(OpKind::embedding, {tokens, table}, {}, "x");
    if (!model_.has_rope) x = op(OpKind::add, {x, param("positions", {S, M})}, {}, "x.positions");
    std::vector<ValueId> losses(1);
    for (layer_ = 0; layer_ < model_.layers; ++layer_) x = layer(x, losses);
    layer_ = -1;
    x = norm(x, "final", M);
    const ValueId head = model_.is_tied ? table : param("head", {M, V});
    const ValueId logits = matmul(x, head, {M}, "logits");
    losses[0] = op(OpKind::cross_entropy, {logits, targets}, {{"over", std::vector{V}}, {"tokens", global_tokens()}},
                   "cross_entropy");
    graph_.outputs = {losses[0]};
    if (losses.size() > 1) graph_.outputs.insert(graph_.outputs.begin(), op(OpKind::add, losses, {}, "loss"));
    return std::move(graph_);
  }

 private:
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return model_.moe && layer >= model_.moe->first && (layer - model_.moe->first) % model_.moe->every == 0;
  }
  [[nodiscard]] std::int64_t tokens() const { return model_.sequences_per_rank * model_.sequence; }
  [[nodiscard]] std::int64_t global_tokens() const {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(tokens(), std::int64_t{graph_.ranks}, &product))
      fail(ErrorCode::invalid_argument, "{}: {} sequences of {} on {} ranks are more tokens than 64 bits can count",
           model_.name, model_.sequences_per_rank, model_.sequence, graph_.ranks);
    return product;
  }

  DimId dim(const char* name, std::int64_t size, DimRole role) {
    return graph_.dims.add({name, size, role, {}, {}, 0, 1});
  }

  void declare_dims() {
    B = dim("B", model_.sequences_per_rank, DimRole::batch);
    S = dim("S", model_.sequence, DimRole::sequence);
    Z = dim("Z", model_.sequence, DimRole::key);
    H = dim("H", model_.attention.heads, DimRole::heads);
    D = dim("D", model_.attention.head_dim, DimRole::feature);
    if (model_.attention.kind == Attention::Kind::latent) {
      Q = dim("Q", model_.attention.query_rank, DimRole::feature);
      C = dim("C", model_.attention.kv_rank, DimRole::feature);
      P = dim("P", model_.attention.rope_dim, DimRole::feature);
      W = dim("W", model_.attention.head_dim, DimRole::feature);
    }
    if (model_.moe) declare_expert_dims(*model_.moe);
    M = dim("M", model_.hidden, DimRole::feature);
    F = dim("F", model_.ffn_hidden, DimRole::feature);
    V = dim("V", model_.vocabulary, DimRole::vocabulary);
    graph_.dims.add_product({"T", {B, S}});
    graph_.dims.add_product({"A", {H, D}});
  }

  void declare_expert_dims(const Moe& moe) {
    const std::int64_t ranks = graph_.ranks;
    const std::int64_t experts = moe.experts > 0 ? moe.experts : moe.experts_per_rank * ranks;
    if (experts % ranks != 0)
      fail(ErrorCode::invalid_argument, "{}: {} experts can't be spread evenly over {} ranks", model_.name, experts,
           ranks);
    if (moe.gate.topk > experts)
      fail(ErrorCode::invalid_argument, "{}: top-{} of {} experts", model_.name, moe.gate.topk, experts);
    E = dim("E", experts, DimRole::expert);
    X = dim("X", experts / ranks, DimRole::local_expert);
    K = dim("K", moe.gate.topk, DimRole::choice);
    for (std::int64_t layer = 0; layer < model_.layers; ++layer)
      if (has_experts(layer))
        rows_.push_back(
            graph_.dims.add({fmt::format("R{}", layer), tokens() * moe.gate.topk, DimRole::rows, X, {}, 0, 1}));
    G = dim("G", moe.hidden, DimRole::feature);
    if (moe.shared > 0) U = dim("U", moe.shared * moe.hidden, DimRole::feature);
  }

  [[nodiscard]] std::string in_layer(const std::string& name) const {
    return layer_ < 0 ? name : fmt::format("l{}.{}", layer_, name);
  }
  [[nodiscard]] Origin origin() const { return {Phase::forward, static_cast<std::int32_t>(layer_)}; }

  ValueId declared(OpKind kind, const std::string& name, Type type) {
    return graph_.op(graph_.declare(kind, {}, {}, {in_layer(name)}, {std::move(type)}, origin())).results.front();
  }
  ValueId param(const std::string& name, std::vector<DimId> dims) {
    return declared(OpKind::param, name, {element_of(model_.dtype), std::move(dims)});
  }
  ValueId op(OpKind kind, std::vector<ValueId> operands, Attributes attributes, const std::string& name) {
    return graph_.op(graph_.append(kind, std::move(operands), std::move(attributes), {in_layer(name)}, origin()))
        .results.front();
  }
  ValueId matmul(ValueId a, ValueId b, std::vector<DimId> over, const std::string& name) {
    return op(OpKind::matmul, {a, b}, {{"over", std::move(over)}}, name);
  }
  ValueId linear(ValueId x, std::vector<DimId> from, std::vector<DimId> to, const std::string& name) {
    return matmul(x, param("w." + name, united(from, to)), from, name);
  }
  ValueId as_keys(ValueId x, const std::string& name) {
    return op(OpKind::rename, {x}, {{"from", std::vector{S}}, {"to", std::vector{Z}}}, name);
  }
  ValueId rope(ValueId x, DimId over, const std::string& name) {
    return op(OpKind::rope, {x}, {{"base", kRopeBase}, {"over", std::vector{over}}, {"sequence", std::vector{S}}},
              name);
  }
  ValueId norm(ValueId x, const std::string& name, DimId over) {
    std::vector<ValueId> operands = {x, param("gain." + name, {over})};
    if (!model_.has_rms_norm) operands.push_back(param("shift." + name, {over}));
    return op(
        OpKind::norm, operands,
        {{"eps", kEps}, {"kind", std::string(model_.has_rms_norm ? "rms" : "layer")}, {"over", std::vector{over}}},
        "norm." + name);
  }

  ValueId layer(ValueId x, std::vector<ValueId>& losses) {
    const ValueId h = norm(x, "attention", M);
    x = op(OpKind::add, {x, model_.attention.kind == Attention::Kind::latent ? latent_attention(h) : attention(h)}, {},
           "x.attention");
    const ValueId g = norm(x, "ffn", M);
    return op(OpKind::add, {x, has_experts(layer_) ? experts(g, losses) : mlp(g, F, "ffn")}, {}, "x.ffn");
  }

  ValueId attention(ValueId h) {
    ValueId q = linear(h, {M}, {H, D}, "q"), k = linear(h, {M}, {H, D}, "k"), v = linear(h, {M}, {H, D}, "v");
    if (model_.has_rope) {
      q = rope(q, D, "q.rope");
      k = rope(k, D, "k.rope");
    }
    k = as_keys(k, "keys");
    v = as_keys(v, "values");
    const double scale = 1 / std::sqrt(static_cast<double>(model_.attention.head_dim));
    ValueId context;
    if (model_.attention.kind == Attention::Kind::fused) {
      context = fused({q, k, v}, {D}, scale);
    } else {
      const ValueId scores = matmul(q, k, {D}, "scores");
      const ValueId shares = op(OpKind::softmax, {scores},
                                {{"causal", std::vector{S}}, {"over", std::vector{Z}}, {"scale", scale}}, "shares");
      context = matmul(shares, v, {Z}, "context");
    }
    return linear(context, {H, D}, {M}, "out");
  }

  ValueId fused(std::vector<ValueId> operands, std::vector<DimId> over, double scale) {
    const Attributes attributes = {
        {"key", std::vector{Z}}, {"over", std::move(over)}, {"scale", scale}, {"sequence", std::vector{S}}};
    return graph_
        .op(graph_.append(OpKind::attention, std::move(operands), attributes,
                          {in_layer("context"), in_layer("log_sum")}, origin()))
        .results.front();
  }

  /// DeepSeek-V2 (arXiv 2405.04434, section 2.1): queries, keys and values are computed from low-rank projections;
  /// positions enter through a second pair whose keys are shared by all heads.
  ValueId latent_attention(ValueId h) {
    const ValueId queries = norm(linear(h, {M}, {Q}, "q.down"), "q", Q);
    const ValueId latent = norm(linear(h, {M}, {C}, "kv.down"), "kv", C);
    const ValueId q = linear(queries, {Q}, {H, D}, "q.up");
    const ValueId q_rope = rope(linear(queries, {Q}, {H, P}, "q.up.rope"), P, "q.rope");
    const ValueId k = as_keys(linear(latent, {C}, {H, D}, "k.up"), "keys");
    const ValueId k_rope = as_keys(rope(linear(h, {M}, {P}, "k.down.rope"), P, "k.rope"), "keys.rope");
    const ValueId v = as_keys(linear(latent, {C}, {H, W}, "v.up"), "values");
    const double scale = 1 / std::sqrt(static_cast<double>(model_.attention.head_dim + model_.attention.rope_dim));
    return linear(fused({q, k, q_rope, k_rope, v}, {D, P}, scale), {H, W}, {M}, "out");
  }

  ValueId mlp(ValueId h, DimId hidden, const std::string& name) {
    const ValueId up = linear(h, {M}, {hidden}, name + ".up");
    return linear(activated(
                      up, [&] { return linear(h, {M}, {hidden}, name + ".gate"); }, name),
                  {hidden}, {M}, name + ".down");
  }

  template <class Gate>
  ValueId activated(ValueId up, const Gate& gate, const std::string& name) {
    if (model_.is_gated) return op(OpKind::swiglu, {gate(), up}, {}, name + ".act");
    return op(OpKind::map, {up}, {{"fn", std::string("gelu")}}, name + ".act");
  }

  ValueId expert_linear(ValueId rows, DimId from, DimId to, ValueId plan, const std::string& name) {
    return op(OpKind::grouped_matmul, {rows, param("w." + name, {X, from, to}), plan}, {{"over", std::vector{from}}},
              name);
  }

  struct Choice {
    ValueId experts, weights;
  };

  ValueId experts(ValueId h, std::vector<ValueId>& losses) {
    const Choice choice = gate(h, losses);
    const DimId rows = rows_[static_cast<std::size_t>((layer_ - model_.moe->first) / model_.moe->every)];
    const ValueId plan = op(OpKind::plan, {choice.experts, choice.weights},
                            {{"expert", std::vector{E}}, {"rows", std::vector{rows}}}, "plan");
    const ValueId sent = op(OpKind::dispatch, {h, plan}, {}, "dispatch");
    // The shared expert is placed where its work can hide the dispatch.
    const ValueId shared = model_.moe->shared > 0 ? mlp(h, U, "shared") : ValueId();
    const ValueId up = expert_linear(sent, M, G, plan, "expert.up");
    const ValueId active = activated(
        up, [&] { return expert_linear(sent, M, G, plan, "expert.gate"); }, "expert");
    const ValueId down = expert_linear(active, G, M, plan, "expert.down");
    const ValueId back = op(OpKind::combine, {down, plan, choice.weights}, {}, "combine");
    return shared.valid() ? op(OpKind::add, {back, shared}, {}, "moe") : back;
  }

  Choice gate(ValueId h, std::vector<ValueId>& losses) {
    const Gate& gate = model_.moe->gate;
    const ValueId logits = linear(h, {M}, {E}, "gate");
    const ValueId scores = gate.scores == Gate::Scores::sigmoid
                               ? op(OpKind::map, {logits}, {{"fn", std::string("sigmoid")}}, "gate.scores")
                               : op(OpKind::softmax, {logits}, {{"over", std::vector{E}}}, "gate.scores");
    std::vector<ValueId> chosen_by = {scores};
    if (gate.has_bias) chosen_by.push_back(declared(OpKind::state, "gate.bias", {Element::f32, {E}}));
    Attributes attributes = {{"choice", std::vector{K}}, {"expert", std::vector{E}}};
    if (gate.groups > 1) {
      attributes.set("groups", gate.groups);
      attributes.set("groups_kept", gate.groups_kept);
    }
    ValueId experts = op(OpKind::topk, chosen_by, attributes, "experts");
    if (gate.balance_loss > 0) losses.push_back(balance_loss(scores, experts));
    if (gate.has_bias) balance_by_bias(chosen_by[1], experts);
    if (gate.capacity_factor > 0) experts = limited(experts);
    const ValueId weights = op(OpKind::pick, {scores, experts},
                               {{"normalise", std::int64_t{gate.normalise}}, {"scale", gate.scale}}, "weights");
    return {experts, weights};
  }

  /// Computed over all ranks' tokens, because it is not linear in them.
  ValueId balance_loss(ValueId scores, ValueId experts) {
    const ValueId counts = summed(op(OpKind::count, {experts}, {{"expert", std::vector{E}}}, "counts"), "counts.all");
    const ValueId shares =
        summed(op(OpKind::reduce, {scores}, {{"over", std::vector{B, S}}}, "score_sums"), "score_sums.all");
    return op(OpKind::balance_loss, {counts, shares},
              {{"by", model_.moe->gate.balance_loss}, {"choices", model_.moe->gate.topk}, {"tokens", global_tokens()}},
              "balance_loss");
  }
  ValueId summed(ValueId x, const std::string& name) {
    return graph_.ranks > 1 ? op(OpKind::all_reduce, {x}, {}, name) : x;
  }
  void balance_by_bias(ValueId bias, ValueId experts) {
    const ValueId counts = summed(op(OpKind::count, {experts}, {{"expert", std::vector{E}}}, "counts"), "counts.all");
    graph_.append(OpKind::bias_update, {bias, counts}, {{"rate", 0.001}}, {in_layer("gate.bias.new")},
                  {Phase::update, static_cast<std::int32_t>(layer_)});
  }
  ValueId limited(ValueId experts) {
    const auto wanted = static_cast<double>(tokens() * model_.moe->gate.topk);
    const auto capacity = static_cast<std::int64_t>(
        std::ceil(model_.moe->gate.capacity_factor * wanted / static_cast<double>(graph_.dims[E].size)));
    return graph_
        .op(graph_.append(OpKind::limit, {experts}, {{"capacity", capacity}, {"expert", std::vector{E}}},
                          {in_layer("experts.kept"), in_layer("experts.used")}, origin()))
        .results.front();
  }

  const Model& model_;
  Graph graph_;
  DimId B, S, Z, H, D, Q, C, P, W, E, X, K, G, U, M, F, V;
  std::vector<DimId> rows_;  // by MoE layer
  std::int64_t layer_ = -1;
};

}  // namespace

Graph build_forward(const Model& model, std::int32_t ranks) { return Transformer(model, ranks).build(); }

Graph build_training_step(const Model& model, std::int32_t ranks) {
  Graph graph = build_forward(model, ranks);
  append_updates(graph, append_backward(graph, graph.outputs.front()), model.optimizer);
  return in_program_order(graph);
}

}  // namespace shunt::graph
