#include "graph/op_table.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/fail.hpp"
#include "graph/rules.hpp"

namespace shunt::graph {

Attributes::Attributes(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) set(entry.first, entry.second);
}

void Attributes::set(std::string name, Attribute value) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, const auto& n) { return e.first < n; });
  if (at != entries_.end() && at->first == name)
    at->second = std::move(value);
  else
    entries_.emplace(at, std::move(name), std::move(value));
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

std::int64_t Attributes::integer(std::string_view name, std::int64_t fallback) const {
  const Attribute* value = find(name);
  return value ? std::get<std::int64_t>(*value) : fallback;
}

double Attributes::real(std::string_view name, double fallback) const {
  const Attribute* value = find(name);
  return value ? std::get<double>(*value) : fallback;
}

std::string_view Attributes::text(std::string_view name) const {
  const Attribute* value = find(name);
  return value ? std::string_view(std::get<std::string>(*value)) : std::string_view();
}

const std::vector<DimId>& Attributes::dims(std::string_view name) const {
  static const std::vector<DimId> none;
  const Attribute* value = find(name);
  return value ? std::get<std::vector<DimId>>(*value) : none;
}

namespace {

constexpr std::int32_t kAny = std::numeric_limits<std::int32_t>::max();
namespace g = gradients;
constexpr auto none = Lane::none;
constexpr auto compute = Lane::compute;
constexpr auto comm = Lane::comm;

// clang-format off
// kind, name, lane, operands, results, attributes, types, split, work, gradient, is a view, writes operands
constexpr OpInfo kTable[] = {
    {OpKind::input, "input", none, 0, 0, 1, "", nullptr, splits::never, nullptr, nullptr},
    {OpKind::param, "param", none, 0, 0, 1, "", nullptr, splits::never, nullptr, nullptr},
    {OpKind::state, "state", none, 0, 0, 1, "", nullptr, splits::never, nullptr, nullptr},
    {OpKind::constant, "constant", none, 0, 0, 1, "value:real", nullptr, splits::never, nullptr, nullptr},
    {OpKind::opaque, "opaque", compute, 0, kAny, kAny, "name:text cost_us:real split:dims?", nullptr, splits::opaque, work::opaque, nullptr},

    {OpKind::rename, "rename", none, 1, 1, 1, "from:dims to:dims", types::rename, splits::not_over, nullptr, g::rename, true},
    {OpKind::part, "part", none, 1, 1, 1, "to:dims", types::part, splits::never, nullptr, nullptr, true},
    {OpKind::join, "join", none, 1, kAny, 1, "to:dims", types::join, splits::never, nullptr, nullptr, true},

    {OpKind::embedding, "embedding", compute, 2, 2, 1, "", types::embedding, splits::embedding, work::embedding, g::embedding},
    {OpKind::embedding_dw, "embedding_dw", compute, 2, 2, 1, "vocabulary:dims", types::embedding_dw, splits::embedding_dw, work::embedding, nullptr},
    {OpKind::rope, "rope", compute, 1, 1, 1, "base:real inverse:int? over:dims sequence:dims", types::along, splits::not_over, work::touch, g::rope},

    {OpKind::matmul, "matmul", compute, 2, 2, 1, "over:dims", types::matmul, splits::sum_over, work::matmul, g::matmul},
    {OpKind::grouped_matmul, "grouped_matmul", compute, 3, 3, 1, "over:dims", types::grouped_matmul, splits::grouped_matmul, work::grouped_matmul, g::grouped_matmul},

    {OpKind::softmax, "softmax", compute, 1, 1, 1, "causal:dims? over:dims scale:real?", types::along, splits::not_over, work::touch, g::softmax},
    {OpKind::softmax_dx, "softmax_dx", compute, 2, 2, 1, "over:dims scale:real?", types::equal_operands, splits::not_over, work::touch, nullptr},
    {OpKind::attention, "attention", compute, 3, 5, 2, "key:dims over:dims scale:real sequence:dims", types::attention, splits::attention, work::attention, g::attention},
    {OpKind::attention_dx, "attention_dx", compute, 6, 8, kAny, "key:dims over:dims scale:real sequence:dims", types::attention_dx, splits::attention_dx, work::attention_dx, nullptr},

    {OpKind::norm, "norm", compute, 2, 3, 1, "eps:real kind:text over:dims", types::norm, splits::not_over, work::touch, g::norm},
    {OpKind::norm_dx, "norm_dx", compute, 3, 3, 1, "eps:real kind:text over:dims", types::norm_dx, splits::not_over, work::touch, nullptr},
    {OpKind::norm_dw, "norm_dw", compute, 2, 2, 1, "eps:real kind:text over:dims", types::norm_dw, splits::norm_dw, work::touch, nullptr},

    {OpKind::map, "map", compute, 1, 1, 1, "fn:text", types::map, splits::free, work::touch, g::map},
    {OpKind::map_dx, "map_dx", compute, 2, 2, 1, "fn:text", types::equal_operands, splits::free, work::touch, nullptr},
    {OpKind::swiglu, "swiglu", compute, 2, 2, 1, "", types::equal_operands, splits::free, work::touch, g::swiglu},
    {OpKind::swiglu_dx, "swiglu_dx", compute, 3, 3, 2, "", types::swiglu_dx, splits::free, work::touch, nullptr},
    {OpKind::add, "add", compute, 2, kAny, 1, "", types::broadcast, splits::free, work::touch, g::add},
    {OpKind::mul, "mul", compute, 2, 2, 1, "", types::broadcast, splits::free, work::touch, g::mul},
    {OpKind::scale, "scale", compute, 1, 1, 1, "by:real", types::as_first, splits::free, work::touch, g::scale},
    {OpKind::reduce, "reduce", compute, 1, 1, 1, "over:dims", types::reduce, splits::sum_over, work::touch, g::reduce},
    {OpKind::expand, "expand", compute, 1, 1, 1, "over:dims", types::expand, splits::free, work::touch, g::expand},

    {OpKind::topk, "topk", compute, 1, 2, 1, "choice:dims expert:dims groups:int? groups_kept:int?", types::topk, splits::choose, work::touch, nullptr},
    {OpKind::pick, "pick", compute, 2, 2, 1, "normalise:int scale:real", types::pick, splits::choose, work::touch, g::pick},
    {OpKind::pick_dx, "pick_dx", compute, 3, 3, 1, "normalise:int scale:real", types::pick_dx, splits::choose, work::touch, nullptr},
    {OpKind::limit, "limit", compute, 1, 2, 2, "capacity:int expert:dims", types::limit, splits::limit, work::touch, nullptr},
    {OpKind::count, "count", compute, 1, 1, 1, "expert:dims", types::count, splits::count, work::touch, nullptr},
    {OpKind::balance_loss, "balance_loss", compute, 2, 2, 1, "by:real choices:int tokens:int", types::balance_loss, splits::never, work::touch, g::balance_loss},
    {OpKind::balance_loss_dx, "balance_loss_dx", compute, 2, 2, 1, "by:real choices:int tokens:int", types::balance_loss_dx, splits::never, work::touch, nullptr},

    {OpKind::plan, "plan", comm, 1, 2, 1, "expert:dims rows:dims", types::plan, splits::shuffle, nullptr, nullptr},
    {OpKind::dispatch, "dispatch", comm, 2, 2, 1, "", types::dispatch, splits::shuffle, nullptr, g::dispatch},
    {OpKind::combine, "combine", comm, 2, 3, 1, "", types::combine, splits::shuffle, nullptr, g::combine},
    {OpKind::combine_dx, "combine_dx", comm, 4, 4, 2, "", types::combine_dx, splits::shuffle, nullptr, nullptr},
    {OpKind::all_reduce, "all_reduce", comm, 1, 1, 1, "", types::as_first, splits::never, nullptr, g::same, true, 0b1},

    {OpKind::cross_entropy, "cross_entropy", compute, 2, 2, 1, "over:dims tokens:int", types::cross_entropy, splits::loss, work::touch, g::cross_entropy},
    {OpKind::cross_entropy_dx, "cross_entropy_dx", compute, 3, 3, 1, "over:dims tokens:int", types::cross_entropy_dx, splits::not_over, work::touch, nullptr},

    {OpKind::sgd, "sgd", compute, 2, 2, 1, "rate:real", types::sgd, splits::never, work::touch, nullptr, true, 0b1},
    {OpKind::adam, "adam", compute, 6, 6, 3, "beta1:real beta2:real eps:real", types::adam, splits::never, work::touch, nullptr, true, 0b1101},
    {OpKind::bias_update, "bias_update", compute, 2, 2, 1, "rate:real", types::sgd, splits::never, work::touch, nullptr, true, 0b1},
};
// clang-format on

constexpr bool rows_stand_where_their_kind_says() {
  for (std::size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<std::size_t>(kTable[i].kind) != i) return false;
  return true;
}
static_assert(rows_stand_where_their_kind_says());

constexpr std::string_view kKinds[] = {"int", "real", "text", "dims"};  // in the order of Attribute's alternatives

struct Wanted {
  std::string_view name, kind;
  bool may_miss;
};

std::vector<Wanted> wanted_by(std::string_view spec) {
  std::vector<Wanted> all;
  while (!spec.empty()) {
    const std::string_view word = spec.substr(0, spec.find(' '));
    spec.remove_prefix(std::min(spec.size(), word.size() + 1));
    const bool may_miss = word.ends_with('?');
    const auto colon = word.find(':');
    all.push_back({word.substr(0, colon), word.substr(colon + 1, word.size() - colon - 1 - may_miss), may_miss});
  }
  return all;
}

}  // namespace

const OpInfo& info(OpKind kind) { return kTable[static_cast<std::size_t>(kind)]; }

std::span<const OpInfo> op_table() { return kTable; }

const OpInfo* find_op(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, const OpInfo*> names;
    for (const OpInfo& op : kTable) names.emplace(op.name, &op);
    return names;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

void check_attributes(const OpInfo& op, const Attributes& attributes) {
  const std::vector<Wanted> wanted = wanted_by(op.attributes);
  for (const Wanted& each : wanted) {
    const Attribute* given = attributes.find(each.name);
    if (!given && !each.may_miss)
      fail(ErrorCode::invalid_argument, "{}: attribute {} ({}) is missing", op.name, each.name, each.kind);
    if (given && kKinds[given->index()] != each.kind)
      fail(ErrorCode::invalid_argument, "{}: attribute {} is of kind {}, expected {}", op.name, each.name,
           kKinds[given->index()], each.kind);
  }
  for (const Attributes::Entry& entry : attributes.entries())
    if (std::none_of(wanted.begin(), wanted.end(), [&](const Wanted& each) { return each.name == entry.first; }))
      fail(ErrorCode::invalid_argument, "{}: unknown attribute {}; expected {}", op.name, entry.first,
           op.attributes.empty() ? "none" : op.attributes);
}

}  // namespace shunt::graph
