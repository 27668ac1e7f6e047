// The type rules of ops: the types of results from operands and attributes. Each rule throws Errors for invalid ones.
#include <algorithm>

#include "core/fail.hpp"
#include "graph/rules.hpp"

namespace shunt::graph::types {
namespace {

std::string names(const OpView& op, std::span<const DimId> dims) {
  std::string text;
  for (const DimId dim : dims) text += (text.empty() ? "" : ",") + op.dims[dim].name;
  return "[" + text + "]";
}

void expect(const OpView& op, std::size_t operand, const std::vector<DimId>& dims) {
  if (op.operands[operand].dims != dims)
    fail(ErrorCode::invalid_argument, "operand {} is {}, expected {}", operand, names(op, op.operands[operand].dims),
         names(op, dims));
}

void expect_element(const OpView& op, std::size_t operand, Element element) {
  if (op.operands[operand].element != element)
    fail(ErrorCode::invalid_argument, "operand {} is {}, expected {}", operand, to_string(op.operands[operand].element),
         to_string(element));
}

void expect_number(const OpView& op, std::size_t operand) {
  const Element element = op.operands[operand].element;
  if (element == Element::i32 || element == Element::plan)
    fail(ErrorCode::invalid_argument, "operand {} is {}, expected a floating type", operand, to_string(element));
}

void expect_within(const OpView& op, std::size_t operand, std::span<const DimId> dims) {
  if (!without(dims, op.operands[operand].dims).empty())
    fail(ErrorCode::invalid_argument, "operand {} is {}, expected it to have {}", operand,
         names(op, op.operands[operand].dims), names(op, dims));
}

DimId only(const OpView& op, std::string_view attribute, DimRole role) {
  const auto& dims = op.attributes.dims(attribute);
  if (dims.size() != 1 || op.dims[dims[0]].role != role)
    fail(ErrorCode::invalid_argument, "attribute {} is {}, expected one dimension of role {}", attribute,
         names(op, dims), to_string(role));
  return dims[0];
}

/// The only dimension of this role in an operand.
DimId of_role(const OpView& op, std::size_t operand, DimRole role) {
  DimId found;
  for (const DimId dim : op.operands[operand].dims) {
    if (op.dims[dim].role != role) continue;
    if (found.valid())
      fail(ErrorCode::invalid_argument, "operand {} has two dimensions of role {}", operand, to_string(role));
    found = dim;
  }
  if (!found.valid())
    fail(ErrorCode::invalid_argument, "operand {} is {}, expected a dimension of role {}", operand,
         names(op, op.operands[operand].dims), to_string(role));
  return found;
}

Type made(const OpView& op, Element element, std::vector<DimId> dims) {
  return {element, op.dims.ordered(std::move(dims))};
}

std::vector<Type> replaced(const OpView& op, std::span<const DimId> from, std::span<const DimId> to) {
  if (from.size() != to.size()) fail(ErrorCode::invalid_argument, "{} dimensions for {}", to.size(), from.size());
  expect_within(op, 0, from);
  const std::vector<DimId> kept = without(op.operands[0].dims, from);
  const std::vector<DimId> dims = op.dims.ordered(united(kept, to));
  if (dims.size() != op.operands[0].dims.size())
    fail(ErrorCode::invalid_argument, "{} would stand twice", names(op, to));
  return {made(op, op.operands[0].element, dims)};
}

/// The token dimensions of a plan: all except choices and rows.
std::vector<DimId> tokens_of(const OpView& op, std::size_t plan) {
  expect_element(op, plan, Element::plan);
  std::vector<DimId> tokens;
  for (const DimId dim : op.operands[plan].dims)
    if (op.dims[dim].role != DimRole::choice && op.dims[dim].role != DimRole::rows) tokens.push_back(dim);
  return tokens;
}

void check_rows(const OpView& op, DimId rows) {
  const DimId groups = op.dims[rows].groups;
  if (!groups.valid() || op.dims[groups].role != DimRole::local_expert)
    fail(ErrorCode::invalid_argument, "{} is grouped by no dimension of role local_expert", op.dims[rows].name);
}

Type product(const OpView& op) {
  expect_number(op, 0);
  expect_number(op, 1);
  const auto& over = op.attributes.dims("over");
  expect_within(op, 0, over);
  expect_within(op, 1, over);
  return made(op, op.operands[0].element, without(united(op.operands[0].dims, op.operands[1].dims), over));
}

void expect_choice(const OpView& op, std::string_view attribute, std::initializer_list<std::string_view> known) {
  const std::string_view given = op.attributes.text(attribute);
  if (std::find(known.begin(), known.end(), given) == known.end())
    fail(ErrorCode::invalid_argument, "{}=\"{}\", expected {}", attribute, given, fmt::join(known, ", "));
}

}  // namespace

std::vector<Type> as_first(const OpView& op) {
  expect_number(op, 0);
  return {op.operands[0]};
}

std::vector<Type> rename(const OpView& op) {
  const auto &from = op.attributes.dims("from"), &to = op.attributes.dims("to");
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i)
    if (op.dims[from[i]].size != op.dims[to[i]].size)
      fail(ErrorCode::invalid_argument, "{} and {} are of different size", op.dims[from[i]].name, op.dims[to[i]].name);
  return replaced(op, from, to);
}

std::vector<Type> part(const OpView& op) {
  const auto& to = op.attributes.dims("to");
  std::vector<DimId> from;
  for (const DimId dim : to) {
    if (!op.dims[dim].whole.valid()) fail(ErrorCode::invalid_argument, "{} is no part", op.dims[dim].name);
    from.push_back(op.dims[dim].whole);
  }
  return replaced(op, from, to);
}

std::vector<Type> join(const OpView& op) {
  const auto& to = op.attributes.dims("to");
  if (to.size() != 1) fail(ErrorCode::invalid_argument, "expected one dimension in to");
  std::vector<Type> result;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    DimId cut;
    for (const DimId dim : op.operands[i].dims)
      if (op.dims[dim].whole == to[0]) cut = dim;
    if (!cut.valid() || op.dims[cut].part != static_cast<std::int32_t>(i) ||
        op.dims[cut].parts != static_cast<std::int32_t>(op.operands.size()))
      fail(ErrorCode::invalid_argument, "operand {} is {}, expected part {}/{} of {}", i,
           names(op, op.operands[i].dims), i, op.operands.size(), op.dims[to[0]].name);
    const std::vector<DimId> cuts = {cut};
    Type whole = made(op, op.operands[i].element, united(without(op.operands[i].dims, cuts), to));
    if (i == 0) result = {whole};
    if (whole != result[0])
      fail(ErrorCode::invalid_argument, "operand {} differs from operand 0 in more than its part", i);
  }
  return result;
}

std::vector<Type> embedding(const OpView& op) {
  expect_element(op, 0, Element::i32);
  expect_number(op, 1);
  const DimId vocabulary = of_role(op, 1, DimRole::vocabulary);
  const std::vector<DimId> gone = {vocabulary};
  return {made(op, op.operands[1].element, united(op.operands[0].dims, without(op.operands[1].dims, gone)))};
}

std::vector<Type> embedding_dw(const OpView& op) {
  expect_element(op, 0, Element::i32);
  expect_within(op, 1, op.operands[0].dims);
  const std::vector<DimId> vocabulary = {only(op, "vocabulary", DimRole::vocabulary)};
  return {made(op, op.operands[1].element, united(without(op.operands[1].dims, op.operands[0].dims), vocabulary))};
}

std::vector<Type> matmul(const OpView& op) {
  if (op.attributes.dims("over").empty()) fail(ErrorCode::invalid_argument, "over is empty");
  return {product(op)};
}

std::vector<Type> grouped_matmul(const OpView& op) {
  expect_element(op, 2, Element::plan);
  const DimId rows = of_role(op, 2, DimRole::rows);
  check_rows(op, rows);
  const std::vector<DimId> just_rows = {rows}, experts = {op.dims[rows].groups};
  expect_within(op, 0, just_rows);
  if (contains(op.attributes.dims("over"), rows)) {  // the gradient of weights: sums the rows of an expert
    Type type = product(op);
    return {made(op, type.element, united(type.dims, experts))};
  }
  expect_within(op, 1, experts);
  Type type = product(op);  // over may be empty: rows are still matched with their expert's weights
  return {made(op, type.element, without(type.dims, experts))};
}

std::vector<Type> along(const OpView& op) {
  expect_number(op, 0);
  const auto& over = op.attributes.dims("over");
  if (over.size() != 1) fail(ErrorCode::invalid_argument, "expected one dimension in over");
  expect_within(op, 0, over);
  for (const std::string_view also : {"sequence", "causal"}) expect_within(op, 0, op.attributes.dims(also));
  return {op.operands[0]};
}

std::vector<Type> attention(const OpView& op) {
  if (op.operands.size() == 4)
    fail(ErrorCode::invalid_argument, "4 operands, expected q, k and v, or two pairs of q and k, and v");
  const std::vector<DimId> key = {only(op, "key", DimRole::key)}, sequence = {only(op, "sequence", DimRole::sequence)};
  const std::size_t v = op.operands.size() - 1;
  for (std::size_t i = 0; i < v; ++i) {
    expect_within(op, i, i % 2 == 0 ? sequence : key);
    if (shared(op.operands[i].dims, op.attributes.dims("over")).empty())
      fail(ErrorCode::invalid_argument, "operand {} has no dimension of over", i);
    expect_number(op, i);
  }
  expect_within(op, v, key);
  const std::vector<DimId> statistics = without(op.operands[0].dims, op.attributes.dims("over"));
  return {made(op, op.operands[v].element, united(statistics, without(op.operands[v].dims, key))),
          made(op, Element::f32, statistics)};
}

std::vector<Type> attention_dx(const OpView& op) {
  if (op.operands.size() == 7) fail(ErrorCode::invalid_argument, "7 operands, expected 6 or 8");
  expect(op, 1, op.operands[0].dims);
  return {op.operands.begin() + 3, op.operands.end()};
}

std::vector<Type> norm(const OpView& op) {
  expect_choice(op, "kind", {"layer", "rms"});
  for (std::size_t i = 1; i < op.operands.size(); ++i) expect(op, i, op.dims.ordered(op.attributes.dims("over")));
  expect_within(op, 0, op.attributes.dims("over"));
  return as_first(op);
}

std::vector<Type> norm_dx(const OpView& op) {
  expect_choice(op, "kind", {"layer", "rms"});
  expect(op, 1, op.operands[0].dims);
  expect(op, 2, op.dims.ordered(op.attributes.dims("over")));
  expect_within(op, 0, op.attributes.dims("over"));
  return as_first(op);
}

std::vector<Type> norm_dw(const OpView& op) {
  expect_choice(op, "kind", {"layer", "rms"});
  expect(op, 1, op.operands[0].dims);
  expect_within(op, 0, op.attributes.dims("over"));
  return {made(op, op.operands[0].element, op.attributes.dims("over"))};
}

std::vector<Type> map(const OpView& op) {
  expect_choice(op, "fn", {"gelu", "silu", "relu", "sigmoid"});
  return as_first(op);
}

std::vector<Type> equal_operands(const OpView& op) {
  for (std::size_t i = 1; i < op.operands.size(); ++i) expect(op, i, op.operands[0].dims);
  if (op.attributes.find("fn")) expect_choice(op, "fn", {"gelu", "silu", "relu", "sigmoid"});
  expect_within(op, 0, op.attributes.dims("over"));
  return as_first(op);
}

std::vector<Type> swiglu_dx(const OpView& op) {
  const Type type = equal_operands(op)[0];
  return {type, type};
}

std::vector<Type> broadcast(const OpView& op) {
  std::vector<DimId> dims;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    expect_number(op, i);
    dims = united(dims, op.operands[i].dims);
  }
  return {made(op, op.operands[0].element, dims)};
}

std::vector<Type> reduce(const OpView& op) {
  expect_number(op, 0);
  expect_within(op, 0, op.attributes.dims("over"));
  return {made(op, op.operands[0].element, without(op.operands[0].dims, op.attributes.dims("over")))};
}

std::vector<Type> expand(const OpView& op) {
  expect_number(op, 0);
  return {made(op, op.operands[0].element, united(op.operands[0].dims, op.attributes.dims("over")))};
}

std::vector<Type> topk(const OpView& op) {
  expect_number(op, 0);
  const std::vector<DimId> expert = {only(op, "expert", DimRole::expert)},
                           choice = {only(op, "choice", DimRole::choice)};
  expect_within(op, 0, expert);
  if (op.operands.size() == 2) expect(op, 1, expert);
  const std::int64_t experts = op.dims[expert[0]].size, groups = op.attributes.integer("groups", 1);
  const std::int64_t kept = op.attributes.integer("groups_kept", groups);
  if (groups < 1 || experts % groups != 0 || kept < 1 || kept > groups)
    fail(ErrorCode::invalid_argument, "{} of {} groups of {} experts", kept, groups, experts);
  if (op.dims[choice[0]].size > experts / groups * kept)
    fail(ErrorCode::invalid_argument, "top-{} of {} experts", op.dims[choice[0]].size, experts / groups * kept);
  return {made(op, Element::i32, united(without(op.operands[0].dims, expert), choice))};
}

std::vector<Type> pick(const OpView& op) {
  expect_number(op, 0);
  expect_element(op, 1, Element::i32);
  const std::vector<DimId> expert = {of_role(op, 0, DimRole::expert)}, choice = {of_role(op, 1, DimRole::choice)};
  const Type type = made(op, op.operands[0].element, united(without(op.operands[0].dims, expert), choice));
  expect(op, 1, type.dims);
  return {type};
}

std::vector<Type> pick_dx(const OpView& op) {
  expect_number(op, 0);
  expect_number(op, 1);
  expect_element(op, 2, Element::i32);
  expect(op, 2, op.operands[0].dims);
  (void)of_role(op, 1, DimRole::expert);
  return {op.operands[1]};
}

std::vector<Type> limit(const OpView& op) {
  expect_element(op, 0, Element::i32);
  (void)of_role(op, 0, DimRole::choice);
  const Type used = made(op, Element::i32, {only(op, "expert", DimRole::expert)});
  if (op.operands.size() == 2) expect(op, 1, used.dims);
  if (op.attributes.integer("capacity") < 0) fail(ErrorCode::invalid_argument, "a negative capacity");
  return {op.operands[0], used};
}

std::vector<Type> count(const OpView& op) {
  expect_element(op, 0, Element::i32);
  (void)of_role(op, 0, DimRole::choice);
  return {made(op, Element::f32, {only(op, "expert", DimRole::expert)})};
}

std::vector<Type> balance_loss(const OpView& op) {
  expect(op, 1, {of_role(op, 0, DimRole::expert)});
  expect(op, 0, op.operands[1].dims);
  if (op.attributes.integer("tokens") < 1 || op.attributes.integer("choices") < 1)
    fail(ErrorCode::invalid_argument, "tokens and choices are counts");
  return {{Element::f32, {}}};
}

std::vector<Type> balance_loss_dx(const OpView& op) {
  expect(op, 0, {});
  expect(op, 1, {of_role(op, 1, DimRole::expert)});
  return {op.operands[1]};
}

std::vector<Type> plan(const OpView& op) {
  expect_element(op, 0, Element::i32);
  (void)of_role(op, 0, DimRole::choice);
  (void)only(op, "expert", DimRole::expert);
  if (op.operands.size() == 2) {  // the weights of its combine, if that has any
    expect_number(op, 1);
    expect(op, 1, op.operands[0].dims);
  }
  const std::vector<DimId> rows = {only(op, "rows", DimRole::rows)};
  check_rows(op, rows[0]);
  return {made(op, Element::plan, united(op.operands[0].dims, rows))};
}

std::vector<Type> dispatch(const OpView& op) {
  expect_number(op, 0);
  const std::vector<DimId> tokens = tokens_of(op, 1), rows = {of_role(op, 1, DimRole::rows)};
  expect_within(op, 0, tokens);
  return {made(op, op.operands[0].element, united(without(op.operands[0].dims, tokens), rows))};
}

std::vector<Type> combine(const OpView& op) {
  expect_number(op, 0);
  const std::vector<DimId> tokens = tokens_of(op, 1), rows = {of_role(op, 1, DimRole::rows)};
  expect_within(op, 0, rows);
  if (const auto twice = shared(op.operands[0].dims, tokens); !twice.empty())
    fail(ErrorCode::invalid_argument, "operand 0 has {}, which its rows' tokens bring", names(op, twice));
  if (op.operands.size() == 3) {
    expect_number(op, 2);
    expect(op, 2, without(op.operands[1].dims, rows));
  }
  return {made(op, op.operands[0].element, united(without(op.operands[0].dims, rows), tokens))};
}

std::vector<Type> combine_dx(const OpView& op) {
  const Type rows = dispatch(op)[0];
  expect(op, 3, rows.dims);
  expect_number(op, 2);
  expect(op, 2, without(op.operands[1].dims, std::vector{of_role(op, 1, DimRole::rows)}));
  return {rows, op.operands[2]};
}

std::vector<Type> cross_entropy(const OpView& op) {
  expect_element(op, 1, Element::i32);
  expect(op, 1, without(op.operands[0].dims, op.attributes.dims("over")));
  if (op.attributes.dims("over").size() != 1) fail(ErrorCode::invalid_argument, "expected one dimension in over");
  expect_within(op, 0, op.attributes.dims("over"));
  if (op.attributes.integer("tokens") < 1) fail(ErrorCode::invalid_argument, "tokens is a count");
  return {{Element::f32, {}}};
}

std::vector<Type> cross_entropy_dx(const OpView& op) {
  expect(op, 0, {});
  expect_element(op, 2, Element::i32);
  if (op.attributes.dims("over").size() != 1) fail(ErrorCode::invalid_argument, "expected one dimension in over");
  expect_within(op, 1, op.attributes.dims("over"));
  expect(op, 2, without(op.operands[1].dims, op.attributes.dims("over")));
  return {op.operands[1]};
}

std::vector<Type> sgd(const OpView& op) {
  expect(op, 1, op.operands[0].dims);
  return as_first(op);
}

std::vector<Type> adam(const OpView& op) {
  for (std::size_t i = 1; i < 4; ++i) expect(op, i, op.operands[0].dims);
  for (std::size_t i = 4; i < 6; ++i) expect(op, i, {});
  return {op.operands[0], op.operands[2], op.operands[3]};
}

}  // namespace shunt::graph::types
