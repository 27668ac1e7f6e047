#include "graph/interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/interpreter_parts.hpp"

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

}  // namespace

void Interpreter::evaluate(const Op& op) {
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
      pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i) * slope(op.attributes.text("fn"), at(in(op, 1), i)); });
      return;
    case OpKind::swiglu:
      pointwise(op, 0, [&](Index& i) { return apply("silu", at(in(op, 0), i)) * at(in(op, 1), i); });
      return;
    case OpKind::swiglu_dx:
      pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i) * slope("silu", at(in(op, 1), i)) * at(in(op, 2), i); });
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
    case OpKind::scale: pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i) * op.attributes.real("by"); }); return;
    case OpKind::expand: pointwise(op, 0, [&](Index& i) { return at(in(op, 0), i); }); return;
    case OpKind::reduce: reduce(op); return;
    case OpKind::all_reduce: all_reduce(op); return;
    case OpKind::topk: topk(op); return;
    case OpKind::pick: pick(op); return;
    case OpKind::pick_dx: pick_dx(op); return;
    case OpKind::limit: limit(op); return;
    case OpKind::count: count(op); return;
    case OpKind::balance_loss: balance_loss(op); return;
    case OpKind::balance_loss_dx: balance_loss_dx(op); return;
    case OpKind::plan: plan(op); return;
    case OpKind::dispatch: dispatch(op); return;
    case OpKind::combine: combine(op); return;
    case OpKind::combine_dx: combine_dx(op); return;
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

void Interpreter::rename(const Op& op) {
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

void Interpreter::part(const Op& op) {
  Tensor out = blank(op, 0, space_of(op));
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

void Interpreter::join(const Op& op) {
  Tensor out = blank(op, 0, space_of(op));
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

void Interpreter::reduce(const Op& op) {
  Tensor out = blank(op, 0, space_of(op));
  for_each(space_of(in(op, 0)), [&](Index& i) { out.data[offset(out, i)] += at(in(op, 0), i); });
  put(op, 0, std::move(out));
}

void Interpreter::all_reduce(const Op& op) {
  pointwise(op, 0, [&](Index& i) {
    double sum = at(ranks_[0].in(op, 0), i);
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank) sum += at(ranks_[rank].in(op, 0), i);
    return sum;
  });
}

void Interpreter::adam(const Op& op) {
  const auto moment = [&](std::size_t operand, const char* beta, Index& i, int power) {
    const double b = op.attributes.real(beta);
    return b * at(in(op, operand), i) + (1 - b) * std::pow(at(in(op, 1), i), power);
  };
  pointwise(op, 1, [&](Index& i) { return moment(2, "beta1", i, 1); });
  pointwise(op, 2, [&](Index& i) { return moment(3, "beta2", i, 2); });
  const double rate = in(op, 4).data[0], step = in(op, 5).data[0];
  const auto unbiased = [&](std::size_t operand, const char* beta, Index& i, int power) {
    return moment(operand, beta, i, power) / (1 - std::pow(op.attributes.real(beta), step));
  };
  pointwise(op, 0, [&](Index& i) {
    return at(in(op, 0), i) - rate * unbiased(2, "beta1", i, 1) /
                                  (std::sqrt(std::max(0.0, unbiased(3, "beta2", i, 2))) + op.attributes.real("eps"));
  });
}

void Interpreter::bias_update(const Op& op) {
  const Tensor& counts = in(op, 1);
  const double mean =
      std::accumulate(counts.data.begin(), counts.data.end(), 0.0) / static_cast<double>(counts.data.size());
  pointwise(op, 0, [&](Index& i) {
    const double excess = at(counts, i) - mean;
    return at(in(op, 0), i) - op.attributes.real("rate") * (excess > 0 ? 1 : excess < 0 ? -1 : 0);
  });
}

void Interpreter::opaque(const Op& op) {
  for (std::size_t r = 0; r < op.results.size(); ++r)
    pointwise(op, r, [&](Index& i) {
      double sum = static_cast<double>(r);
      for (std::size_t o = 0; o < op.operands.size(); ++o)
        if (without(in(op, o).dims, graph_.type(op.results[r]).dims).empty()) sum += std::sin(at(in(op, o), i));
      return sum;
    });
}

RankValues interpret(const Graph& graph, const RankValues& given) {
  std::vector<Interpreter> ranks;
  ranks.reserve(given.size());
  for (std::size_t rank = 0; rank < given.size(); ++rank) ranks.emplace_back(graph, given[rank], rank, ranks);
  for (const Op& op : graph.ops())
    for (Interpreter& rank : ranks) rank.evaluate(op);
  RankValues values;
  for (const Interpreter& rank : ranks) values.push_back(rank.values());
  return values;
}

bool is_replicated(const Graph& graph, const Op& declaration) {
  const auto& dims = graph.type(declaration.results[0]).dims;
  const bool is_of_tokens = declaration.kind == OpKind::input && !dims.empty();
  return !is_of_tokens && std::none_of(dims.begin(), dims.end(),
                                       [&](DimId dim) { return graph.dims[dim].role == DimRole::local_expert; });
}

RankValues random_declarations(const Graph& graph, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::int64_t vocabulary = 1;
  for (const Dim& dim : graph.dims.dims())
    if (dim.role == DimRole::vocabulary) vocabulary = dim.size;
  const auto random_tensor = [&](const Op& op) {
    const Type& type = graph.type(op.results[0]);
    Tensor tensor;
    tensor.dims = type.dims;
    for (const DimId dim : type.dims) tensor.sizes.push_back(graph.dims[dim].size);
    for (std::int64_t i = 0; i < graph.dims.count(type.dims); ++i)
      tensor.data.push_back(type.element == Element::i32 ? std::floor(uniform() * static_cast<double>(vocabulary))
                            : op.kind == OpKind::state   ? 0.01 * uniform()
                            : type.dims.empty()          ? 1 + uniform()  // rates and steps are positive
                                                         : uniform() - 0.5);
    return tensor;
  };
  RankValues values(static_cast<std::size_t>(graph.ranks));
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::input && op.kind != OpKind::param && op.kind != OpKind::state) continue;
    for (Values& own : values)
      own[graph.value(op.results[0]).name] = is_replicated(graph, op) && &own != &values[0]
                                                 ? values[0].at(graph.value(op.results[0]).name)
                                                 : random_tensor(op);
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
  constexpr double kRounding = 1e-14;
  return std::sqrt(distance) <= tolerance * std::sqrt(norm) + kRounding;
}

}  // namespace shunt::graph::test
