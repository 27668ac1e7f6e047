#include "graph/interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "graph/tensor_space.hpp"

namespace shunt::graph::test {
namespace {

double apply(std::string_view fn, double x) {
  if (fn == "gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (fn == "silu") return x / (1 + std::exp(-x));
  if (fn == "relu") return std::max(x, 0.0);
  return 1 / (1 + std::exp(-x));
}

double slope(std::string_view fn, double x) {
  if (fn == "gelu")
    return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  const double s = 1 / (1 + std::exp(-x));
  if (fn == "silu") return s * (1 + x * (1 - s));
  if (fn == "relu") return x > 0 ? 1 : 0;
  return s * (1 - s);
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, const Values& given) : graph_(graph), given_(given), values_(graph.values().size()) {}

  Values run() {
    for (const Op& op : graph_.ops()) evaluate(op);
    Values all;
    for (std::size_t i = 0; i < values_.size(); ++i) all[graph_.value(ValueId(i)).name] = values_[i];
    return all;
  }

 private:
  const Tensor& in(const Op& op, std::size_t i) const { return values_[op.operands[i].index()]; }

  /// Sizes of rows follow from the operands.
  Tensor blank(const Op& op, std::size_t result, const Space& known) const {
    Tensor tensor;
    tensor.dims = graph_.type(op.results[result]).dims;
    std::int64_t count = 1;
    for (const DimId dim : tensor.dims) {
      tensor.sizes.push_back(contains(known.dims, dim) ? known.size(dim) : graph_.dims[dim].size);
      count *= tensor.sizes.back();
    }
    tensor.data.assign(static_cast<std::size_t>(count), 0.0);
    return tensor;
  }
  Space space_of(const Op& op) const {
    Space space;
    for (const ValueId operand : op.operands) space.add(values_[operand.index()]);
    return space;
  }
  Space space_of(const Tensor& tensor) const {
    Space space;
    space.add(tensor);
    return space;
  }
  Space outer(const Tensor& tensor, const std::vector<DimId>& over) const {
    Space space;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i)
      if (!contains(over, tensor.dims[i])) space.add(tensor.dims[i], tensor.sizes[i]);
    return space;
  }
  Space inner(const Tensor& tensor, const std::vector<DimId>& over) const {
    Space space;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i)
      if (contains(over, tensor.dims[i])) space.add(tensor.dims[i], tensor.sizes[i]);
    return space;
  }
  /// Where a part begins in its whole.
  std::int64_t begin_of(DimId dim) const {
    const Dim& d = graph_.dims[dim];
    if (!d.whole.valid()) return 0;
    return begin_of(d.whole) + graph_.dims[d.whole].size * d.part / d.parts;
  }
  DimId of_role(const Tensor& tensor, DimRole role) const {
    for (const DimId dim : tensor.dims)
      if (graph_.dims[dim].role == role) return dim;
    throw std::logic_error("no dimension of this role");
  }
  static Index merged(Index a, const Index& b) {
    for (const auto& [dim, value] : b) a[dim] = value;
    return a;
  }

  void put(const Op& op, std::size_t result, Tensor tensor) { values_[op.results[result].index()] = std::move(tensor); }

  template <class F>
  void pointwise(const Op& op, std::size_t result, const F& f) {
    Tensor out = blank(op, result, space_of(op));
    for_each(space_of(out), [&](Index& i) { out.data[offset(out, i)] = f(i); });
    put(op, result, std::move(out));
  }

  void evaluate(const Op& op) {
    switch (op.kind) {
      case OpKind::input:
      case OpKind::param:
      case OpKind::state: put(op, 0, given_.at(graph_.value(op.results[0]).name)); return;
      case OpKind::constant: put(op, 0, {{}, {}, {op.attributes.real("value")}, {}, {}}); return;
      case OpKind::rename: rename(op); return;
      case OpKind::part: part(op); return;
      case OpKind::join: join(op); return;
      case OpKind::embedding: embedding(op); return;
      case OpKind::embedding_dw: embedding_dw(op); return;
      case OpKind::rope: rope(op); return;
      case OpKind::matmul: matmul(op, nullptr); return;
      case OpKind::grouped_matmul: matmul(op, &in(op, 2)); return;
      case OpKind::softmax: softmax(op); return;
      case OpKind::softmax_dx: softmax_dx(op); return;
      case OpKind::attention: attention(op); return;
      case OpKind::attention_dx: attention_dx(op); return;
      case OpKind::norm:
      case OpKind::norm_dx:
      case OpKind::norm_dw: norm(op); return;
      case OpKind::map:
        pointwise(op, 0, [&](Index& i) { return apply(op.attributes.text("fn"), at(in(op, 0), i)); });
        return;
      case OpKind::map_dx:
        pointwise(op, 0,
                  [&](Index& i) { return at(in(op, 0), i) * slope(op.attributes.text("fn"), at(in(op, 1), i)); });
        return;
      case OpKind::swiglu:
        pointwise(op, 0, [&](Index& i) { return apply("silu", at(in(op, 0), i)) * at(in(op, 1), i); });
        return;
      case OpKind::swiglu_dx:
        pointwise(op, 0,
                  [&](Index& i) { return at(in(op, 0), i) * slope("silu", at(in(op, 1), i)) * at(in(op, 2), i); });
        pointwise(op, 1, [&](Index& i) { return at(in(op, 0), i) * apply("silu", at(in(op, 1), i)); });
        return;
      case OpKind::add:
        pointwise(op, 0, [&](Index& i) {
          double sum = at(in(op, 0), i);
          for (std::size_t o = 1; o < op.operands.size(); ++o) sum += at(in(op, o), i);
          return sum;
        });
        return;
      case OpKind::mul: pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i) * at(in(op, 1), i); }); return;
      case OpKind::scale:
        pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i) * op.attributes.real("by"); });
        return;
      case OpKind::expand:
      case OpKind::all_reduce: pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i); }); return;
      case OpKind::reduce: reduce(op); return;
      case OpKind::topk: topk(op); return;
      case OpKind::pick: pick(op); return;
      case OpKind::pick_dx: pick_dx(op); return;
      case OpKind::limit: limit(op); return;
      case OpKind::count: count(op); return;
      case OpKind::balance_loss: balance_loss(op); return;
      case OpKind::balance_loss_dx: balance_loss_dx(op); return;
      case OpKind::plan: plan(op); return;
      case OpKind::dispatch: dispatch(op, false); return;
      case OpKind::combine: combine(op); return;
      case OpKind::combine_dx: dispatch(op, true); return;
      case OpKind::cross_entropy:
      case OpKind::cross_entropy_dx: cross_entropy(op); return;
      case OpKind::sgd:
        pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i) - op.attributes.real("rate") * at(in(op, 1), i); });
        return;
      case OpKind::adam: adam(op); return;
      case OpKind::bias_update: bias_update(op); return;
      case OpKind::opaque: opaque(op); return;
    }
  }

  void rename(const Op& op) {
    const auto &from = op.attributes.dims("from"), &to = op.attributes.dims("to");
    Space known = space_of(op);
    for (std::size_t i = 0; i < from.size(); ++i) known.add(to[i], known.size(from[i]));
    Tensor out = blank(op, 0, known);
    for_each(space_of(out), [&](Index& i) {
      Index source = i;
      for (std::size_t d = 0; d < from.size(); ++d) source[from[d]] = i.at(to[d]);
      out.data[offset(out, i)] = at(in(op, 0), source);
    });
    put(op, 0, std::move(out));
  }

  void part(const Op& op) {
    Tensor out = blank(op, 0, {});
    for_each(space_of(out), [&](Index& i) {
      Index source = i;
      for (const DimId dim : op.attributes.dims("to")) {
        const DimId whole = graph_.dims[dim].whole;
        source[whole] = i.at(dim) + begin_of(dim) - begin_of(whole);
      }
      out.data[offset(out, i)] = at(in(op, 0), source);
    });
    put(op, 0, std::move(out));
  }

  void join(const Op& op) {
    Tensor out = blank(op, 0, {});
    const DimId whole = op.attributes.dims("to")[0];
    for (std::size_t o = 0; o < op.operands.size(); ++o) {
      DimId cut;
      for (const DimId dim : in(op, o).dims)
        if (graph_.dims[dim].whole == whole) cut = dim;
      for_each(space_of(in(op, o)), [&](Index& i) {
        Index target = i;
        target[whole] = i.at(cut) + begin_of(cut) - begin_of(whole);
        out.data[offset(out, target)] = at(in(op, o), i);
      });
    }
    put(op, 0, std::move(out));
  }

  void embedding(const Op& op) {
    const DimId vocabulary = of_role(in(op, 1), DimRole::vocabulary);
    pointwise(op, 0, [&](Index& i) {
      return at(in(op, 1), merged(i, {{vocabulary, static_cast<std::int64_t>(at(in(op, 0), i))}}));
    });
  }
  void embedding_dw(const Op& op) {
    Tensor out = blank(op, 0, {});
    const DimId vocabulary = op.attributes.dims("vocabulary")[0];
    for_each(space_of(in(op, 1)), [&](Index& i) {
      out.data[offset(out, merged(i, {{vocabulary, static_cast<std::int64_t>(at(in(op, 0), i))}}))] += at(in(op, 1), i);
    });
    put(op, 0, std::move(out));
  }

  void rope(const Op& op) {
    const DimId over = op.attributes.dims("over")[0], sequence = op.attributes.dims("sequence")[0];
    const std::int64_t half = graph_.dims[over].size / 2;
    const double sign = op.attributes.integer("inverse") ? -1 : 1;
    pointwise(op, 0, [&](Index& i) {
      const std::int64_t feature = i.at(over);
      if (feature >= 2 * half) return at(in(op, 0), i);  // without a partner
      const std::int64_t pair = feature % half;
      const auto position = static_cast<double>(i.at(sequence) + begin_of(sequence));
      const double angle = sign * position *
                           std::pow(op.attributes.real("base"), -static_cast<double>(pair) / static_cast<double>(half));
      const double first = at(in(op, 0), merged(i, {{over, pair}}));
      const double second = at(in(op, 0), merged(i, {{over, pair + half}}));
      return feature < half ? first * std::cos(angle) - second * std::sin(angle)
                            : second * std::cos(angle) + first * std::sin(angle);
    });
  }

  void matmul(const Op& op, const Tensor* plan) {
    Space all;
    all.add(in(op, 0));
    all.add(in(op, 1));
    DimId rows, experts;
    if (plan) {
      rows = of_role(*plan, DimRole::rows);
      experts = graph_.dims[rows].groups;
      std::vector<DimId> dims;
      std::vector<std::int64_t> sizes;
      for (std::size_t i = 0; i < all.dims.size(); ++i)
        if (all.dims[i] != experts) {
          dims.push_back(all.dims[i]);
          sizes.push_back(all.sizes[i]);
        }
      all = {dims, sizes};
    }
    Tensor out = blank(op, 0, space_of(op));
    for_each(all, [&](Index& i) {
      if (plan) i[experts] = plan->row_expert[static_cast<std::size_t>(i.at(rows))];
      out.data[offset(out, i)] += at(in(op, 0), i) * at(in(op, 1), i);
    });
    put(op, 0, std::move(out));
  }

  void softmax(const Op& op) {
    Tensor out = blank(op, 0, space_of(op));
    const DimId over = op.attributes.dims("over")[0];
    const auto& causal = op.attributes.dims("causal");
    const double scale = op.attributes.real("scale", 1);
    for_each(outer(out, {over}), [&](Index& i) {
      const std::int64_t last = causal.empty() ? graph_.dims[over].size : i.at(causal[0]) + begin_of(causal[0]) + 1;
      double sum = 0;
      for (std::int64_t v = 0; v < last; ++v) sum += std::exp(scale * at(in(op, 0), merged(i, {{over, v}})));
      for (std::int64_t v = 0; v < last; ++v)
        out.data[offset(out, merged(i, {{over, v}}))] = std::exp(scale * at(in(op, 0), merged(i, {{over, v}}))) / sum;
    });
    put(op, 0, std::move(out));
  }
  void softmax_dx(const Op& op) {
    Tensor out = blank(op, 0, space_of(op));
    const std::vector<DimId> over = op.attributes.dims("over");
    for_each(outer(out, over), [&](Index& i) {
      double dot = 0;
      for_each(inner(out, over), [&](Index& v) { dot += at(in(op, 0), merged(i, v)) * at(in(op, 1), merged(i, v)); });
      for_each(inner(out, over), [&](Index& v) {
        const Index both = merged(i, v);
        out.data[offset(out, both)] =
            op.attributes.real("scale", 1) * at(in(op, 1), both) * (at(in(op, 0), both) - dot);
      });
    });
    put(op, 0, std::move(out));
  }

  /// exp(scores) of every (query, key) that the mask leaves, from pairs of queries and keys beginning at operand
  /// `first`.
  double score(const Op& op, std::size_t first, std::size_t v, const Index& i) const {
    double sum = 0;
    for (std::size_t pair = first; pair < v; pair += 2)
      for_each(inner(in(op, pair), op.attributes.dims("over")),
               [&](Index& d) { sum += at(in(op, pair), merged(i, d)) * at(in(op, pair + 1), merged(i, d)); });
    return op.attributes.real("scale") * sum;
  }
  std::int64_t keys_seen(const Op& op, const Index& i) const {
    const DimId sequence = op.attributes.dims("sequence")[0];
    return i.at(sequence) + begin_of(sequence) + 1;
  }
  void attention(const Op& op) {
    const std::size_t v = op.operands.size() - 1;
    const DimId key = op.attributes.dims("key")[0];
    Tensor out = blank(op, 0, space_of(op)), log_sum = blank(op, 1, space_of(op));
    for_each(space_of(log_sum), [&](Index& i) {
      double sum = 0;
      for (std::int64_t z = 0; z < keys_seen(op, i); ++z) sum += std::exp(score(op, 0, v, merged(i, {{key, z}})));
      log_sum.data[offset(log_sum, i)] = std::log(sum);
      for (std::int64_t z = 0; z < keys_seen(op, i); ++z) {
        const Index pair = merged(i, {{key, z}});
        const double share = std::exp(score(op, 0, v, pair)) / sum;
        for_each(outer(out, log_sum.dims),
                 [&](Index& d) { out.data[offset(out, merged(i, d))] += share * at(in(op, v), merged(pair, d)); });
      }
    });
    put(op, 0, std::move(out));
    put(op, 1, std::move(log_sum));
  }
  void attention_dx(const Op& op) {
    const std::size_t v = op.operands.size() - 1;
    const DimId key = op.attributes.dims("key")[0];
    const Tensor &dout = in(op, 0), &out = in(op, 1), &log_sum = in(op, 2);
    std::vector<Tensor> grads;
    for (std::size_t i = 0; i < op.results.size(); ++i) grads.push_back(blank(op, i, space_of(op)));
    for_each(space_of(log_sum), [&](Index& i) {
      double dot = 0;
      for_each(outer(out, log_sum.dims), [&](Index& d) { dot += at(dout, merged(i, d)) * at(out, merged(i, d)); });
      for (std::int64_t z = 0; z < keys_seen(op, i); ++z) {
        const Index pair = merged(i, {{key, z}});
        const double share = std::exp(score(op, 3, v, pair) - at(log_sum, i));
        double dshare = 0;
        for_each(outer(out, log_sum.dims), [&](Index& d) {
          dshare += at(dout, merged(i, d)) * at(in(op, v), merged(pair, d));
          grads.back().data[offset(grads.back(), merged(pair, d))] += share * at(dout, merged(i, d));
        });
        const double dscore = op.attributes.real("scale") * share * (dshare - dot);
        for (std::size_t q = 3; q < v; q += 2)
          for_each(inner(in(op, q), op.attributes.dims("over")), [&](Index& d) {
            const Index both = merged(pair, d);
            grads[q - 3].data[offset(grads[q - 3], both)] += dscore * at(in(op, q + 1), both);
            grads[q - 2].data[offset(grads[q - 2], both)] += dscore * at(in(op, q), both);
          });
      }
    });
    for (std::size_t i = 0; i < op.results.size(); ++i) put(op, i, grads[i]);
  }

  void norm(const Op& op) {
    const auto& over = op.attributes.dims("over");
    const bool is_layer = op.attributes.text("kind") == "layer";
    const Tensor& x = in(op, op.kind == OpKind::norm ? 0 : 1);
    Tensor out = blank(op, 0, space_of(op));
    const Space features = inner(x, over);
    const auto n = static_cast<double>(
        std::accumulate(features.sizes.begin(), features.sizes.end(), std::int64_t{1}, std::multiplies<>()));
    for_each(outer(x, over), [&](Index& i) {
      double mean = 0, square = 0;
      if (is_layer) for_each(features, [&](Index& f) { mean += at(x, merged(i, f)) / n; });
      for_each(features, [&](Index& f) { square += std::pow(at(x, merged(i, f)) - mean, 2) / n; });
      const double scale = 1 / std::sqrt(square + op.attributes.real("eps"));
      const auto hat = [&](const Index& f) { return (at(x, merged(i, f)) - mean) * scale; };
      if (op.kind == OpKind::norm) {
        for_each(features, [&](Index& f) {
          out.data[offset(out, merged(i, f))] =
              hat(f) * at(in(op, 1), f) + (op.operands.size() == 3 ? at(in(op, 2), f) : 0);
        });
      } else if (op.kind == OpKind::norm_dw) {
        for_each(features, [&](Index& f) { out.data[offset(out, f)] += at(in(op, 0), merged(i, f)) * hat(f); });
      } else {
        double sum = 0, dot = 0;
        const auto dhat = [&](const Index& f) { return at(in(op, 0), merged(i, f)) * at(in(op, 2), f); };
        for_each(features, [&](Index& f) {
          sum += dhat(f) / n;
          dot += dhat(f) * hat(f) / n;
        });
        for_each(features, [&](Index& f) {
          out.data[offset(out, merged(i, f))] = scale * (dhat(f) - (is_layer ? sum : 0) - hat(f) * dot);
        });
      }
    });
    put(op, 0, std::move(out));
  }

  void reduce(const Op& op) {
    Tensor out = blank(op, 0, space_of(op));
    for_each(space_of(in(op, 0)), [&](Index& i) { out.data[offset(out, i)] += at(in(op, 0), i); });
    put(op, 0, std::move(out));
  }

  void topk(const Op& op) {
    Tensor out = blank(op, 0, space_of(op));
    const DimId expert = op.attributes.dims("expert")[0], choice = op.attributes.dims("choice")[0];
    const std::int64_t experts = graph_.dims[expert].size, groups = op.attributes.integer("groups", 1);
    const std::int64_t kept = op.attributes.integer("groups_kept", groups), size = experts / groups;
    for_each(outer(out, {choice}), [&](Index& i) {
      std::vector<double> scores;
      for (std::int64_t e = 0; e < experts; ++e)
        scores.push_back(at(in(op, 0), merged(i, {{expert, e}})) +
                         (op.operands.size() == 2 ? at(in(op, 1), {{expert, e}}) : 0));
      const auto best_first = [](const std::vector<double>& of) {
        std::vector<std::int64_t> order(of.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
          return of[static_cast<std::size_t>(a)] > of[static_cast<std::size_t>(b)];
        });
        return order;
      };
      // A group is as good as its two best experts (DeepSeek-V3).
      std::vector<double> group_scores;
      for (std::int64_t g = 0; g < groups; ++g) {
        std::vector<double> members(scores.begin() + g * size, scores.begin() + (g + 1) * size);
        std::sort(members.rbegin(), members.rend());
        group_scores.push_back(members[0] + (size > 1 ? members[1] : 0));
      }
      const auto group_order = best_first(group_scores);
      std::int64_t taken = 0;
      for (const std::int64_t e : best_first(scores)) {
        if (taken == graph_.dims[choice].size) break;
        if (std::find(group_order.begin(), group_order.begin() + kept, e / size) == group_order.begin() + kept)
          continue;
        out.data[offset(out, merged(i, {{choice, taken++}}))] = static_cast<double>(e);
      }
    });
    put(op, 0, std::move(out));
  }

  /// A token's picked scores; 0 where the choice was dropped.
  template <class Visit>
  void for_each_pick(const Tensor& scores, const Tensor& experts, const Visit& visit) {
    const DimId expert = of_role(scores, DimRole::expert), choice = of_role(experts, DimRole::choice);
    for_each(outer(experts, {choice}), [&](Index& i) {
      std::vector<Index> score_at, choice_at;
      for (std::int64_t k = 0; k < graph_.dims[choice].size; ++k) {
        choice_at.push_back(merged(i, {{choice, k}}));
        const auto e = static_cast<std::int64_t>(at(experts, choice_at.back()));
        if (e < 0)
          choice_at.pop_back();
        else
          score_at.push_back(merged(i, {{expert, e}}));
      }
      visit(score_at, choice_at);
    });
  }
  void pick(const Op& op) {
    Tensor out = blank(op, 0, space_of(op));
    for_each_pick(in(op, 0), in(op, 1), [&](const auto& score_at, const auto& choice_at) {
      double sum = 0;
      for (const Index& i : score_at) sum += at(in(op, 0), i);
      for (std::size_t k = 0; k < score_at.size(); ++k)
        out.data[offset(out, choice_at[k])] =
            op.attributes.real("scale") * at(in(op, 0), score_at[k]) / (op.attributes.integer("normalise") ? sum : 1);
    });
    put(op, 0, std::move(out));
  }
  void pick_dx(const Op& op) {
    Tensor out = blank(op, 0, space_of(op));
    for_each_pick(in(op, 1), in(op, 2), [&](const auto& score_at, const auto& choice_at) {
      double sum = 0, dot = 0;
      for (std::size_t k = 0; k < score_at.size(); ++k) {
        sum += at(in(op, 1), score_at[k]);
        dot += at(in(op, 0), choice_at[k]) * at(in(op, 1), score_at[k]);
      }
      for (std::size_t k = 0; k < score_at.size(); ++k)
        out.data[offset(out, score_at[k])] +=
            op.attributes.real("scale") * (op.attributes.integer("normalise")
                                               ? at(in(op, 0), choice_at[k]) / sum - dot / (sum * sum)
                                               : at(in(op, 0), choice_at[k]));
    });
    put(op, 0, std::move(out));
  }

  void limit(const Op& op) {
    Tensor out = in(op, 0);
    Tensor used = op.operands.size() == 2 ? in(op, 1) : blank(op, 1, {});
    for (double& expert : out.data) {
      if (expert < 0) continue;
      double& count = used.data[static_cast<std::size_t>(expert)];
      if (count < static_cast<double>(op.attributes.integer("capacity")))
        ++count;
      else
        expert = -1;
    }
    put(op, 0, std::move(out));
    put(op, 1, std::move(used));
  }
  void count(const Op& op) {
    Tensor out = blank(op, 0, {});
    for (const double expert : in(op, 0).data)
      if (expert >= 0) ++out.data[static_cast<std::size_t>(expert)];
    put(op, 0, std::move(out));
  }
  void balance_loss(const Op& op) {
    const auto tokens = static_cast<double>(op.attributes.integer("tokens"));
    const auto choices = static_cast<double>(op.attributes.integer("choices"));
    double sum = 0;
    for (std::size_t e = 0; e < in(op, 0).data.size(); ++e)
      sum += in(op, 0).data[e] / (tokens * choices) * in(op, 1).data[e] / tokens;
    put(op, 0, {{}, {}, {op.attributes.real("by") * static_cast<double>(in(op, 0).data.size()) * sum}, {}, {}});
  }
  void balance_loss_dx(const Op& op) {
    const auto tokens = static_cast<double>(op.attributes.integer("tokens"));
    const auto choices = static_cast<double>(op.attributes.integer("choices"));
    const auto experts = static_cast<double>(in(op, 1).data.size());
    pointwise(op, 0, [&](Index& i) {
      return in(op, 0).data[0] * op.attributes.real("by") * experts * at(in(op, 1), i) / (tokens * choices * tokens);
    });
  }

  void plan(const Op& op) {
    Tensor out;
    const DimId rows = op.attributes.dims("rows")[0];
    const Tensor& experts = in(op, 0);
    const std::int64_t choices = graph_.dims[of_role(experts, DimRole::choice)].size;
    const std::int64_t count = graph_.dims[graph_.dims[rows].groups].size;
    // Choices are the last of a token's dimensions, so entries stand token by token.
    for (std::int64_t e = 0; e < count; ++e)
      for (std::size_t entry = 0; entry < experts.data.size(); ++entry) {
        if (static_cast<std::int64_t>(experts.data[entry]) != e) continue;
        const auto position = static_cast<std::int64_t>(entry);
        out.rows.push_back({position / choices, position % choices});
        out.row_expert.push_back(e);
      }
    out.dims = {rows};
    out.sizes = {static_cast<std::int64_t>(out.rows.size())};
    for (std::size_t i = 0; i < experts.dims.size(); ++i) {
      out.dims.push_back(experts.dims[i]);
      out.sizes.push_back(experts.sizes[i]);
    }
    put(op, 0, std::move(out));
  }
  /// Where a plan's row comes from.
  Index token_of(const Tensor& plan, const Row& row) const {
    Index index;
    std::int64_t rest = row.token;
    for (std::size_t i = plan.dims.size(); i-- > 0;) {
      const DimRole role = graph_.dims[plan.dims[i]].role;
      if (role == DimRole::rows) continue;
      if (role == DimRole::choice) {
        index[plan.dims[i]] = row.choice;
        continue;
      }
      index[plan.dims[i]] = rest % plan.sizes[i];
      rest /= plan.sizes[i];
    }
    return index;
  }
  void dispatch(const Op& op, bool is_gradient) {
    const Tensor &x = in(op, 0), &plan = in(op, 1);
    const DimId rows = of_role(plan, DimRole::rows);
    Tensor out = blank(op, 0, space_of(plan)), weights;
    if (is_gradient) weights = blank(op, 1, space_of(op));
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      const Index token = token_of(plan, plan.rows[r]);
      for_each(outer(out, {rows}), [&](Index& f) {
        const Index row = merged(f, {{rows, static_cast<std::int64_t>(r)}});
        const double value = at(x, merged(token, f));
        out.data[offset(out, row)] = is_gradient ? value * at(in(op, 2), token) : value;
        if (is_gradient) weights.data[offset(weights, token)] += value * at(in(op, 3), row);
      });
    }
    put(op, 0, std::move(out));
    if (is_gradient) put(op, 1, std::move(weights));
  }
  void combine(const Op& op) {
    const Tensor &y = in(op, 0), &plan = in(op, 1);
    const DimId rows = of_role(plan, DimRole::rows);
    Tensor out = blank(op, 0, space_of(op));
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      const Index token = token_of(plan, plan.rows[r]);
      for_each(outer(y, {rows}), [&](Index& f) {
        out.data[offset(out, merged(token, f))] += at(y, merged(f, {{rows, static_cast<std::int64_t>(r)}})) *
                                                   (op.operands.size() == 3 ? at(in(op, 2), token) : 1);
      });
    }
    put(op, 0, std::move(out));
  }

  void cross_entropy(const Op& op) {
    const bool is_gradient = op.kind == OpKind::cross_entropy_dx;
    const Tensor &logits = in(op, is_gradient ? 1 : 0), &targets = in(op, is_gradient ? 2 : 1);
    const DimId over = op.attributes.dims("over")[0];
    const auto tokens = static_cast<double>(op.attributes.integer("tokens"));
    Tensor out = blank(op, 0, space_of(op));
    for_each(space_of(targets), [&](Index& i) {
      double sum = 0;
      for_each(inner(logits, {over}), [&](Index& v) { sum += std::exp(at(logits, merged(i, v))); });
      const auto target = static_cast<std::int64_t>(at(targets, i));
      if (!is_gradient) {
        out.data[0] += (std::log(sum) - at(logits, merged(i, {{over, target}}))) / tokens;
        return;
      }
      for_each(inner(logits, {over}), [&](Index& v) {
        const Index both = merged(i, v);
        out.data[offset(out, both)] =
            in(op, 0).data[0] * (std::exp(at(logits, both)) / sum - (v.at(over) == target ? 1 : 0)) / tokens;
      });
    });
    put(op, 0, std::move(out));
  }

  void adam(const Op& op) {
    const auto moment = [&](std::size_t operand, const char* beta, Index& i, int power) {
      const double b = op.attributes.real(beta);
      return b * at(in(op, operand), i) + (1 - b) * std::pow(at(in(op, 1), i), power);
    };
    pointwise(op, 1, [&](Index& i) { return moment(2, "beta1", i, 1); });
    pointwise(op, 2, [&](Index& i) { return moment(3, "beta2", i, 2); });
    pointwise(op, 0, [&](Index& i) {
      return at(in(op, 0), i) - op.attributes.real("rate") * moment(2, "beta1", i, 1) /
                                    (std::sqrt(std::max(0.0, moment(3, "beta2", i, 2))) + op.attributes.real("eps"));
    });
  }
  void bias_update(const Op& op) {
    const Tensor& counts = in(op, 1);
    const double mean =
        std::accumulate(counts.data.begin(), counts.data.end(), 0.0) / static_cast<double>(counts.data.size());
    pointwise(op, 0, [&](Index& i) {
      const double excess = at(counts, i) - mean;
      return at(in(op, 0), i) - op.attributes.real("rate") * (excess > 0 ? 1 : excess < 0 ? -1 : 0);
    });
  }
  /// Something that depends on every operand, part by part.
  void opaque(const Op& op) {
    for (std::size_t r = 0; r < op.results.size(); ++r)
      pointwise(op, r, [&](Index& i) {
        double sum = static_cast<double>(r);
        for (std::size_t o = 0; o < op.operands.size(); ++o)
          if (without(in(op, o).dims, graph_.type(op.results[r]).dims).empty()) sum += std::sin(at(in(op, o), i));
        return sum;
      });
  }

  const Graph& graph_;
  const Values& given_;
  std::vector<Tensor> values_;
};

}  // namespace

Values interpret(const Graph& graph, const Values& given) { return Interpreter(graph, given).run(); }

Values random_declarations(const Graph& graph, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::int64_t vocabulary = 1;
  for (const Dim& dim : graph.dims.dims())
    if (dim.role == DimRole::vocabulary) vocabulary = dim.size;
  Values values;
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::input && op.kind != OpKind::param && op.kind != OpKind::state) continue;
    const Type& type = graph.type(op.results[0]);
    Tensor tensor;
    tensor.dims = type.dims;
    for (const DimId dim : type.dims) tensor.sizes.push_back(graph.dims[dim].size);
    for (std::int64_t i = 0; i < graph.dims.count(type.dims); ++i)
      tensor.data.push_back(type.element == Element::i32 ? std::floor(uniform() * static_cast<double>(vocabulary))
                            : op.kind == OpKind::state   ? 0.01 * uniform()
                                                         : uniform() - 0.5);
    values[graph.value(op.results[0]).name] = std::move(tensor);
  }
  return values;
}

bool are_near(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.data.size() != b.data.size()) return false;
  double norm = 0, distance = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    norm += a.data[i] * a.data[i];
    distance += (a.data[i] - b.data[i]) * (a.data[i] - b.data[i]);
  }
  return std::sqrt(distance) <= tolerance * std::sqrt(norm);
}

}  // namespace shunt::graph::test
