// Routing: the choice of a token's experts, dispatch and combine.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/interpreter_parts.hpp"

namespace shunt::graph::test {

void Interpreter::topk(const Op& op) {
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
    // The score of a group is that of its two best experts (DeepSeek-V3).
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
      if (std::find(group_order.begin(), group_order.begin() + kept, e / size) == group_order.begin() + kept) continue;
      out.data[offset(out, merged(i, {{choice, taken++}}))] = static_cast<double>(e);
    }
  });
  put(op, 0, std::move(out));
}

void Interpreter::pick(const Op& op) {
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

void Interpreter::pick_dx(const Op& op) {
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

void Interpreter::limit(const Op& op) {
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

void Interpreter::count(const Op& op) {
  Tensor out = blank(op, 0, {});
  for (const double expert : in(op, 0).data)
    if (expert >= 0) ++out.data[static_cast<std::size_t>(expert)];
  put(op, 0, std::move(out));
}

void Interpreter::balance_loss(const Op& op) {
  const auto tokens = static_cast<double>(op.attributes.integer("tokens"));
  const auto choices = static_cast<double>(op.attributes.integer("choices"));
  double sum = 0;
  for (std::size_t e = 0; e < in(op, 0).data.size(); ++e)
    sum += in(op, 0).data[e] / (tokens * choices) * in(op, 1).data[e] / tokens;
  put(op, 0, {{}, {}, {op.attributes.real("by") * static_cast<double>(in(op, 0).data.size()) * sum}, {}, {}});
}

void Interpreter::balance_loss_dx(const Op& op) {
  const auto tokens = static_cast<double>(op.attributes.integer("tokens"));
  const auto choices = static_cast<double>(op.attributes.integer("choices"));
  const auto experts = static_cast<double>(in(op, 1).data.size());
  pointwise(op, 0, [&](Index& i) {
    return in(op, 0).data[0] * op.attributes.real("by") * experts * at(in(op, 1), i) / (tokens * choices * tokens);
  });
}

void Interpreter::plan(const Op& op) {
  Tensor out;
  const DimId rows = op.attributes.dims("rows")[0];
  const Tensor& own = in(op, 0);
  const std::int64_t choices = graph_.dims[of_role(own, DimRole::choice)].size;
  const std::int64_t count = graph_.dims[graph_.dims[rows].groups].size;
  // Choices are the last of a token's dimensions, so a token's entries are adjacent.
  for (std::int64_t local = 0; local < count; ++local)
    for (const Interpreter& peer : ranks_) {
      const std::vector<double>& experts = peer.in(op, 0).data;
      for (std::size_t entry = 0; entry < experts.size(); ++entry) {
        if (static_cast<std::int64_t>(experts[entry]) != static_cast<std::int64_t>(rank_) * count + local) continue;
        const auto position = static_cast<std::int64_t>(entry);
        out.rows.push_back({peer.rank_, position / choices, position % choices});
        out.row_expert.push_back(local);
      }
    }
  out.dims = {rows};
  out.sizes = {static_cast<std::int64_t>(out.rows.size())};
  for (std::size_t i = 0; i < own.dims.size(); ++i) {
    out.dims.push_back(own.dims[i]);
    out.sizes.push_back(own.sizes[i]);
  }
  put(op, 0, std::move(out));
}

Index Interpreter::token_of(const Tensor& plan, const Row& row) const {
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

void Interpreter::dispatch(const Op& op) {
  const Tensor& plan = in(op, 1);
  const DimId rows = of_role(plan, DimRole::rows);
  Tensor out = blank(op, 0, space_of(plan));
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const Tensor& x = ranks_[plan.rows[r].rank].in(op, 0);
    const Index token = token_of(plan, plan.rows[r]);
    for_each(outer(out, {rows}), [&](Index& f) {
      out.data[offset(out, merged(f, {{rows, static_cast<std::int64_t>(r)}}))] = at(x, merged(token, f));
    });
  }
  put(op, 0, std::move(out));
}

void Interpreter::combine(const Op& op) {
  const DimId rows = of_role(in(op, 1), DimRole::rows);
  Tensor out = blank(op, 0, space_of(op));
  for_each_own_row(op, 1, [&](const Interpreter& peer, std::int64_t row, const Index& token) {
    for_each(outer(in(op, 0), {rows}), [&](Index& f) {
      out.data[offset(out, merged(token, f))] +=
          at(peer.in(op, 0), merged(f, {{rows, row}})) * (op.operands.size() == 3 ? at(in(op, 2), token) : 1);
    });
  });
  put(op, 0, std::move(out));
}

void Interpreter::combine_dx(const Op& op) {
  const Tensor& plan = in(op, 1);
  const DimId rows = of_role(plan, DimRole::rows);
  Tensor out = blank(op, 0, space_of(plan)), weights = blank(op, 1, space_of(op));
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const Interpreter& home = ranks_[plan.rows[r].rank];
    const Index token = token_of(plan, plan.rows[r]);
    for_each(outer(out, {rows}), [&](Index& f) {
      out.data[offset(out, merged(f, {{rows, static_cast<std::int64_t>(r)}}))] =
          at(home.in(op, 0), merged(token, f)) * at(home.in(op, 2), token);
    });
  }
  for_each_own_row(op, 1, [&](const Interpreter& peer, std::int64_t row, const Index& token) {
    for_each(outer(out, {rows}), [&](Index& f) {
      weights.data[offset(weights, token)] +=
          at(in(op, 0), merged(token, f)) * at(peer.in(op, 3), merged(f, {{rows, row}}));
    });
  });
  put(op, 0, std::move(out));
  put(op, 1, std::move(weights));
}

}  // namespace shunt::graph::test
