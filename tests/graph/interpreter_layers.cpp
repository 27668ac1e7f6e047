// Dense layers, which process each token or sequence on its own.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/interpreter_parts.hpp"

namespace shunt::graph::test {

void Interpreter::embedding(const Op& op) {
  const DimId vocabulary = of_role(in(op, 1), DimRole::vocabulary);
  pointwise(op, 0, [&](Index& i) {
    return at(in(op, 1), merged(i, {{vocabulary, static_cast<std::int64_t>(at(in(op, 0), i))}}));
  });
}

void Interpreter::embedding_dw(const Op& op) {
  Tensor out = blank(op, 0, {});
  const DimId vocabulary = op.attributes.dims("vocabulary")[0];
  for_each(space_of(in(op, 1)), [&](Index& i) {
    out.data[offset(out, merged(i, {{vocabulary, static_cast<std::int64_t>(at(in(op, 0), i))}}))] += at(in(op, 1), i);
  });
  put(op, 0, std::move(out));
}

void Interpreter::rope(const Op& op) {
  const DimId over = op.attributes.dims("over")[0], sequence = op.attributes.dims("sequence")[0];
  const std::int64_t half = graph_.dims[over].size / 2;
  const double sign = op.attributes.integer("inverse") ? -1 : 1;
  pointwise(op, 0, [&](Index& i) {
    const std::int64_t feature = i.at(over);
    if (feature >= 2 * half) return at(in(op, 0), i);  // not rotated
    const std::int64_t pair = feature % half;
    const auto position = static_cast<double>(i.at(sequence) + begin_of(sequence));
    const double angle =
        sign * position * std::pow(op.attributes.real("base"), -static_cast<double>(pair) / static_cast<double>(half));
    const double first = at(in(op, 0), merged(i, {{over, pair}}));
    const double second = at(in(op, 0), merged(i, {{over, pair + half}}));
    return feature < half ? first * std::cos(angle) - second * std::sin(angle)
                          : second * std::cos(angle) + first * std::sin(angle);
  });
}

void Interpreter::matmul(const Op& op, const Tensor* plan) {
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
    if (plan) i[experts] = plan->row_expert.at(static_cast<std::size_t>(i.at(rows)));
    out.data[offset(out, i)] += at(in(op, 0), i) * at(in(op, 1), i);
  });
  put(op, 0, std::move(out));
}

void Interpreter::softmax(const Op& op) {
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

void Interpreter::softmax_dx(const Op& op) {
  Tensor out = blank(op, 0, space_of(op));
  const std::vector<DimId> over = op.attributes.dims("over");
  for_each(outer(out, over), [&](Index& i) {
    double dot = 0;
    for_each(inner(out, over), [&](Index& v) { dot += at(in(op, 0), merged(i, v)) * at(in(op, 1), merged(i, v)); });
    for_each(inner(out, over), [&](Index& v) {
      const Index both = merged(i, v);
      out.data[offset(out, both)] = op.attributes.real("scale", 1) * at(in(op, 1), both) * (at(in(op, 0), both) - dot);
    });
  });
  put(op, 0, std::move(out));
}

double Interpreter::score(const Op& op, std::size_t first, std::size_t v, const Index& i) const {
  double sum = 0;
  for (std::size_t pair = first; pair < v; pair += 2)
    for_each(inner(in(op, pair), op.attributes.dims("over")),
             [&](Index& d) { sum += at(in(op, pair), merged(i, d)) * at(in(op, pair + 1), merged(i, d)); });
  return op.attributes.real("scale") * sum;
}

std::int64_t Interpreter::keys_seen(const Op& op, const Index& i) const {
  const DimId sequence = op.attributes.dims("sequence")[0];
  return i.at(sequence) + begin_of(sequence) + 1;
}

void Interpreter::attention(const Op& op) {
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

void Interpreter::attention_dx(const Op& op) {
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

void Interpreter::norm(const Op& op) {
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

void Interpreter::cross_entropy(const Op& op) {
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

}  // namespace shunt::graph::test
