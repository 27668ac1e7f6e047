#include "graph/random_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "support/dice.hpp"

namespace shunt::graph::test {
namespace {

constexpr std::int64_t kMostElements = 200;  // the interpreter is slow

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed), dice_(random_), graph_("random", dice_.pick({1, 2})) {
    declare_dims();
  }

  Graph run() {
    for (int i = dice_.between(1, 2); i > 0; --i) add(declared(OpKind::input, some_dims(1, 3)), false);
    add(declared(OpKind::param, some_of(plain_dims(), 1, 2)), true);
    for (int i = dice_.between(6, 24); i > 0; --i) append_any();
    append_losses();
    for (const Known& each : known_)
      if (!each.is_smooth && dice_.one_in(2)) graph_.outputs.push_back(each.id);
    return std::move(graph_);
  }

 private:
  struct Known {
    ValueId id;
    bool has_param;         // depends on a parameter through differentiable ops
    bool is_smooth = true;  // it and everything it depends on
  };
  using Step = void (Generator::*)();

  DimId dim(const char* name, std::int64_t size, DimRole role, DimId groups = {}) {
    return graph_.dims.add({name, size, role, groups, {}, 0, 1});
  }

  // Declares tokens' dimensions before choices, as the interpreter requires.
  void declare_dims() {
    if (!dice_.one_in(6)) batch_ = dim("B", dice_.pick({1, 2, 3, 4, 6}), DimRole::batch);
    S_ = dim("S", dice_.between(1, 3), DimRole::sequence);
    Z_ = dim("Z", graph_.dims[S_].size, DimRole::key);
    H_ = dim("H", dice_.between(1, 2), DimRole::heads);
    M_ = dim("M", dice_.between(1, 4), DimRole::feature);
    N_ = dim("N", graph_.dims[M_].size, DimRole::feature);
    D_ = dim("D", dice_.between(1, 3), DimRole::feature);
    V_ = dim("V", dice_.between(2, 4), DimRole::vocabulary);
    X_ = dim("X", dice_.between(1, 2), DimRole::local_expert);
    E_ = dim("E", graph_.dims[X_].size * graph_.ranks, DimRole::expert);
    K_ = dim("K", dice_.between(1, static_cast<std::int32_t>(std::min<std::int64_t>(2, graph_.dims[E_].size))),
             DimRole::choice);
    plans_left_ = dice_.pick({0, 1, 1, 2, 3});
  }

  std::vector<DimId> plain_dims() const {
    std::vector<DimId> all = {S_, Z_, H_, M_, N_, D_, V_};
    if (batch_.valid()) all.push_back(batch_);
    return all;
  }

  std::vector<DimId> some_of(std::vector<DimId> dims, std::int32_t least, std::int32_t most) {
    std::vector<DimId> chosen;
    const auto order = dice_.permutation(static_cast<std::int32_t>(dims.size()));
    const std::int32_t count = std::min(dice_.between(least, most), static_cast<std::int32_t>(dims.size()));
    for (std::int32_t i = 0; i < count; ++i)
      chosen.push_back(dims[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]);
    return graph_.dims.ordered(chosen);
  }
  std::vector<DimId> some_dims(std::int32_t least, std::int32_t most) {
    std::vector<DimId> dims = some_of(plain_dims(), least, most);
    if (batch_.valid() && !dice_.one_in(3)) dims = graph_.dims.ordered(united(dims, std::vector{batch_}));
    return dims;
  }

  [[nodiscard]] const std::vector<DimId>& dims_of(ValueId value) const { return graph_.type(value).dims; }
  [[nodiscard]] bool is_rows(DimId dim) const { return graph_.dims[dim].role == DimRole::rows; }
  [[nodiscard]] bool has_rows(ValueId value) const {
    return std::any_of(dims_of(value).begin(), dims_of(value).end(), [&](DimId dim) { return is_rows(dim); });
  }
  /// All dimensions but rows: sums over rows only have a gradient that lacks their number.
  std::vector<DimId> regular_dims(ValueId value) const {
    std::vector<DimId> dims = dims_of(value);
    std::erase_if(dims, [&](DimId dim) { return is_rows(dim); });
    return dims;
  }
  [[nodiscard]] bool is_small(std::span<const DimId> dims) const { return graph_.dims.count(dims) <= kMostElements; }

  std::string next_name(const char* stem) { return fmt::format("{}{}", stem, graph_.values().size()); }

  ValueId declared(OpKind kind, std::vector<DimId> dims, Element element = Element::f32) {
    const std::string name = next_name(kind == OpKind::input ? "in" : kind == OpKind::param ? "w" : "state");
    return graph_.op(graph_.declare(kind, {}, {}, {name}, {{element, graph_.dims.ordered(std::move(dims))}}, origin()))
        .results.front();
  }
  ValueId append(OpKind kind, std::vector<ValueId> operands, Attributes attributes) {
    std::vector<std::string> names(static_cast<std::size_t>(std::min(info(kind).num_results, 2)));
    for (std::string& name : names) name = next_name("v");
    if (names.size() == 2) names[1] += ".second";
    return graph_.op(graph_.append(kind, std::move(operands), std::move(attributes), names, origin())).results.front();
  }
  [[nodiscard]] Origin origin() const { return {Phase::forward, layer_}; }

  void add(ValueId id, bool has_param, bool is_smooth = true) { known_.push_back({id, has_param, is_smooth}); }
  void add(ValueId id, std::initializer_list<Known> from) {
    add(id, std::any_of(from.begin(), from.end(), [](const Known& k) { return k.has_param; }),
        std::all_of(from.begin(), from.end(), [](const Known& k) { return k.is_smooth; }));
  }

  /// Prefers late values, so that graphs are deep.
  Known any() {
    const auto last = static_cast<std::int32_t>(known_.size()) - 1;
    return known_[static_cast<std::size_t>(std::max(dice_.between(0, last), dice_.between(0, last)))];
  }
  template <class Fits>
  std::optional<Known> any_that(const Fits& fits) {
    for (int attempt = 0; attempt < 20; ++attempt)
      if (const Known each = any(); fits(each)) return each;
    return std::nullopt;
  }
  Known new_param(std::vector<DimId> dims) { return {declared(OpKind::param, std::move(dims)), true}; }

  void append_any() {
    static constexpr Step kSteps[] = {
        &Generator::matmul, &Generator::matmul,  &Generator::norm,    &Generator::map,       &Generator::swiglu,
        &Generator::sum,    &Generator::product, &Generator::scale,   &Generator::reduce,    &Generator::expand,
        &Generator::rename, &Generator::softmax, &Generator::rope,    &Generator::attention, &Generator::embedding,
        &Generator::opaque, &Generator::experts, &Generator::experts,
    };
    layer_ = dice_.between(-1, 2);
    (this->*kSteps[dice_.between(0, static_cast<std::int32_t>(std::size(kSteps)) - 1)])();
  }

  void matmul() {
    const Known a = any();
    const std::vector<DimId> own = regular_dims(a.id);
    if (own.empty()) return;
    const Known b = dice_.one_in(2) ? new_param(united(some_of(own, 1, 2), some_of(plain_dims(), 0, 1))) : any();
    const std::vector<DimId> both = shared(dims_of(a.id), dims_of(b.id));
    if (both.empty() || !is_small(united(dims_of(a.id), dims_of(b.id)))) return;
    add(append(OpKind::matmul, {a.id, b.id}, {{"over", some_of(both, 1, 2)}}), {a, b});
  }

  void norm() {
    const Known x = any();
    const std::vector<DimId> over = some_of(regular_dims(x.id), 1, 2);
    if (over.empty()) return;
    std::vector<ValueId> operands = {x.id, new_param(over).id};
    if (dice_.one_in(2)) operands.push_back(new_param(over).id);
    // A large eps keeps the function smooth enough for finite differences.
    add(append(OpKind::norm, operands,
               {{"eps", 0.5}, {"kind", dice_.pick<std::string>({"layer", "rms"})}, {"over", over}}),
        true, x.is_smooth);
  }

  void map() {
    const Known x = any();
    add(append(OpKind::map, {x.id}, {{"fn", dice_.pick<std::string>({"gelu", "silu", "relu", "sigmoid"})}}), {x});
  }

  void swiglu() {
    const Known a = any();
    const Known b = any_that([&](const Known& k) { return dims_of(k.id) == dims_of(a.id); }).value_or(a);
    add(append(OpKind::swiglu, {a.id, b.id}, {}), {a, b});
  }

  void broadcast(OpKind kind) {
    const Known a = any(), b = any();
    if (!is_small(united(dims_of(a.id), dims_of(b.id)))) return;
    add(append(kind, {a.id, b.id}, {}), {a, b});
  }
  void sum() { broadcast(OpKind::add); }
  void product() { broadcast(OpKind::mul); }

  void scale() {
    const Known x = any();
    add(append(OpKind::scale, {x.id}, {{"by", dice_.pick({-1.5, 0.5, 2.0})}}), {x});
  }

  void reduce() {
    const Known x = any();
    add(append(OpKind::reduce, {x.id}, {{"over", some_of(regular_dims(x.id), 0, 2)}}), {x});
  }

  void expand() {
    const Known x = any();
    const std::vector<DimId> over = without(some_of(plain_dims(), 1, 2), dims_of(x.id));
    if (over.empty() || !is_small(united(dims_of(x.id), over))) return;
    add(append(OpKind::expand, {x.id}, {{"over", over}}), {x});
  }

  void rename() {
    const auto [from, to] = dice_.pick({std::pair(S_, Z_), std::pair(Z_, S_), std::pair(M_, N_), std::pair(N_, M_)});
    const auto x = any_that(
        [&, a = from, b = to](const Known& k) { return graph_.type(k.id).has(a) && !graph_.type(k.id).has(b); });
    if (x) add(append(OpKind::rename, {x->id}, {{"from", std::vector{from}}, {"to", std::vector{to}}}), {*x});
  }

  void softmax() {
    const Known x = any();
    const std::vector<DimId> over = some_of(regular_dims(x.id), 1, 1);
    if (over.empty()) return;
    Attributes attributes = {{"over", over}};
    if (over[0] == Z_ && graph_.type(x.id).has(S_) && dice_.one_in(2)) attributes.set("causal", std::vector{S_});
    if (dice_.one_in(2)) attributes.set("scale", 0.7);
    add(append(OpKind::softmax, {x.id}, attributes), {x});
  }

  void rope() {
    const auto x = any_that([&](const Known& k) { return graph_.type(k.id).has(S_) && graph_.type(k.id).has(M_); });
    if (x)
      add(append(OpKind::rope, {x->id}, {{"base", 10.0}, {"over", std::vector{M_}}, {"sequence", std::vector{S_}}}),
          {*x});
  }

  /// Queries and keys are computed from one value, values from another.
  void attention() {
    const auto fits = [&](const Known& k) {
      return graph_.type(k.id).has(S_) && !graph_.type(k.id).has(Z_) && graph_.type(k.id).has(M_);
    };
    const auto x = any_that(fits), y = any_that(fits);
    if (!x || !y || !is_small(united(dims_of(x->id), std::vector{Z_}))) return;
    if (!without(regular_dims(y->id), dims_of(x->id)).empty() || has_rows(x->id) || has_rows(y->id)) return;
    const auto as_keys = [&](ValueId v) {
      return append(OpKind::rename, {v}, {{"from", std::vector{S_}}, {"to", std::vector{Z_}}});
    };
    add(append(OpKind::attention, {x->id, as_keys(x->id), as_keys(y->id)},
               {{"key", std::vector{Z_}}, {"over", std::vector{M_}}, {"scale", 0.8}, {"sequence", std::vector{S_}}}),
        {*x, *y});
  }

  void embedding() {
    const std::vector<DimId> own = {V_};
    const ValueId tokens = declared(OpKind::input, without(some_dims(1, 2), own), Element::i32);
    const Known table = new_param({V_, dice_.pick({M_, D_})});
    if (shared(dims_of(tokens), dims_of(table.id)).empty())
      add(append(OpKind::embedding, {tokens, table.id}, {}), {table});
  }

  void opaque() {
    if (dice_.one_in(2)) return;  // the ops below have no gradient
    const Known a = any(), b = any();
    std::vector<DimId> dims = united(dims_of(a.id), dims_of(b.id));
    if (!is_small(dims)) return;
    if (dice_.one_in(4)) dims = without(dims, some_of(dims, 1, 1));
    Attributes attributes = {{"cost_us", dice_.pick({0.0, 1.0, 100.0})}, {"name", std::string("any")}};
    if (dice_.one_in(2)) attributes.set("split", some_of(dims, 0, 3));
    const ValueId made = graph_
                             .op(graph_.declare(OpKind::opaque, {a.id, b.id}, attributes, {next_name("o")},
                                                {{Element::f32, graph_.dims.ordered(dims)}}, origin()))
                             .results.front();
    add(made, false, false);
  }

  struct Gate {
    Known scores;
    ValueId experts, weights, plan;
    std::vector<DimId> tokens;
  };

  void experts() {
    if (plans_left_ == 0) return;
    const bool wants_batch = batch_.valid() && !dice_.one_in(4);
    const auto x = any_that([&](const Known& k) {
      const std::vector<DimId> dims = dims_of(k.id);
      return !has_rows(k.id) && !dims.empty() && (!wants_batch || (graph_.type(k.id).has(batch_) && dims.size() > 1));
    });
    if (!x) return;
    --plans_left_;
    const Gate gate = gated(*x);
    const bool shares_tokens = plans_left_ > 0 && dice_.one_in(3);
    run_experts(*x, gate);
    if (!shares_tokens) return;
    --plans_left_;
    run_experts(
        *x, {gate.scores, gate.experts, gate.weights, plan_for(gate.experts, gate.weights, gate.tokens), gate.tokens});
  }

  Gate gated(const Known& x) {
    std::vector<DimId> features = dims_of(x.id);
    if (features.size() > 1) std::erase(features, batch_);
    const std::vector<DimId> over = some_of(features, 1, 1);
    const ValueId logits =
        append(OpKind::matmul, {x.id, declared(OpKind::param, united(over, std::vector{E_}))}, {{"over", over}});
    const Known scores = {dice_.one_in(2) ? append(OpKind::softmax, {logits}, {{"over", std::vector{E_}}})
                                          : append(OpKind::map, {logits}, {{"fn", std::string("sigmoid")}}),
                          true, x.is_smooth};
    const std::vector<DimId> tokens = without(dims_of(x.id), over);
    std::vector<ValueId> chosen_by = {scores.id};
    if (dice_.one_in(3)) chosen_by.push_back(declared(OpKind::state, {E_}));
    ValueId experts = append(OpKind::topk, chosen_by, {{"choice", std::vector{K_}}, {"expert", std::vector{E_}}});
    if (dice_.one_in(3)) append_balance_loss(scores, experts, tokens);
    if (chosen_by.size() == 2) balance_by_bias(chosen_by[1], experts);
    if (dice_.one_in(3))
      experts = append(OpKind::limit, {experts}, {{"capacity", dice_.between(1, 3)}, {"expert", std::vector{E_}}});
    const ValueId weights =
        append(OpKind::pick, {scores.id, experts}, {{"normalise", std::int64_t{dice_.one_in(2)}}, {"scale", 1.5}});
    return {scores, experts, weights, plan_for(experts, weights, tokens), tokens};
  }

  ValueId plan_for(ValueId experts, ValueId weights, const std::vector<DimId>& tokens) {
    const std::string name = fmt::format("R{}", plans_left_);
    const std::int64_t all = graph_.dims.count(tokens) * graph_.dims[K_].size;
    const std::int64_t mean = dice_.one_in(4) ? (all + 1) / 2 : all;  // as if some choices were dropped
    const DimId rows = dim(name.c_str(), mean, DimRole::rows, X_);
    const std::vector<ValueId> operands = dice_.one_in(3) ? std::vector{experts} : std::vector{experts, weights};
    return append(OpKind::plan, operands, {{"expert", std::vector{E_}}, {"rows", std::vector{rows}}});
  }

  void balance_by_bias(ValueId bias, ValueId experts) {
    const ValueId counts = of_all_ranks(append(OpKind::count, {experts}, {{"expert", std::vector{E_}}}));
    graph_.append(OpKind::bias_update, {bias, counts}, {{"rate", 0.01}}, {next_name("bias")}, {Phase::update, layer_});
  }

  ValueId of_all_ranks(ValueId v) { return graph_.ranks > 1 ? append(OpKind::all_reduce, {v}, {}) : v; }

  void append_balance_loss(const Known& scores, ValueId experts, const std::vector<DimId>& tokens) {
    const ValueId counts = of_all_ranks(append(OpKind::count, {experts}, {{"expert", std::vector{E_}}}));
    const ValueId sums = of_all_ranks(append(OpKind::reduce, {scores.id}, {{"over", tokens}}));
    const ValueId loss =
        append(OpKind::balance_loss, {counts, sums},
               {{"by", 0.3}, {"choices", graph_.dims[K_].size}, {"tokens", graph_.dims.count(tokens) * graph_.ranks}});
    if (scores.is_smooth) losses_.push_back(loss);
  }

  void run_experts(const Known& x, const Gate& gate) {
    const Known sent = any_that([&](const Known& k) {
                         return !has_rows(k.id) && without(gate.tokens, dims_of(k.id)).empty();
                       }).value_or(x);
    const ValueId rows = append(OpKind::dispatch, {sent.id, gate.plan}, {});
    if (dice_.one_in(4)) return;  // rows without users
    Known out = {rows, sent.has_param, sent.is_smooth};
    add(out.id, {out});
    const DimId row_dim = rows_of(rows);
    for (int i = dice_.between(1, 2); i > 0; --i) {
      const std::vector<DimId> from = some_of(regular_dims(out.id), 1, 1);
      if (from.empty()) break;
      std::vector<DimId> weights = united(std::vector{X_}, from);
      if (!dice_.one_in(5)) weights = united(weights, some_of({M_, N_, D_}, 1, 1));
      if (dice_.one_in(4)) weights = united(weights, some_of(regular_dims(out.id), 1, 1));
      out = {append(OpKind::grouped_matmul, {out.id, declared(OpKind::param, weights), gate.plan}, {{"over", from}}),
             true, out.is_smooth};
      add(out.id, {out});
    }
    // Another value with the same rows, if there is one.
    if (const auto other = any_that([&](const Known& k) {
          return graph_.type(k.id).has(row_dim) && regular_dims(k.id).size() + 1 == dims_of(k.id).size() &&
                 shared(regular_dims(k.id), gate.tokens).empty();
        }))
      out = *other;
    if (!shared(regular_dims(out.id), gate.tokens).empty()) return;
    if (!is_small(united(gate.tokens, regular_dims(out.id)))) return;
    const Known weights = {gate.weights, true, gate.scores.is_smooth};
    if (dice_.one_in(4))
      add(append(OpKind::combine, {out.id, gate.plan}, {}), {out});
    else
      add(append(OpKind::combine, {out.id, gate.plan, gate.weights}, {}), {out, weights});
  }

  DimId rows_of(ValueId value) const {
    for (const DimId each : dims_of(value))
      if (is_rows(each)) return each;
    return {};
  }

  void append_losses() {
    layer_ = -1;
    const auto is_loss = [](const Known& k) { return k.has_param && k.is_smooth; };
    for (int i = dice_.between(1, 5); i > 0; --i)
      if (const auto x = any_that(is_loss)) losses_.push_back(loss_of(*x));
    if (losses_.empty()) losses_.push_back(loss_of(new_param({M_})));
    graph_.outputs = {losses_.size() == 1 ? losses_[0] : append(OpKind::add, losses_, {})};
  }

  ValueId loss_of(const Known& x) {
    const std::vector<DimId> over = {V_};
    if (graph_.type(x.id).has(V_) && !has_rows(x.id)) {
      const ValueId targets = declared(OpKind::input, without(dims_of(x.id), over), Element::i32);
      return append(OpKind::cross_entropy, {x.id, targets}, {{"over", over}, {"tokens", 5}});
    }
    if (has_rows(x.id)) return append(OpKind::matmul, {x.id, x.id}, {{"over", dims_of(x.id)}});
    const ValueId curved = append(OpKind::map, {x.id}, {{"fn", std::string("silu")}});
    return append(OpKind::reduce, {curved}, {{"over", dims_of(curved)}});
  }

  std::mt19937_64 random_;
  shunt::test::Dice dice_;
  Graph graph_;
  DimId batch_, S_, Z_, H_, M_, N_, D_, V_, X_, E_, K_;
  std::vector<Known> known_;
  std::vector<ValueId> losses_;
  std::int32_t plans_left_ = 0, layer_ = -1;
};

}  // namespace

Graph random_forward(std::uint64_t seed) { return Generator(seed).run(); }

}  // namespace shunt::graph::test
