// Every op of the compute lane, on the values that the interpreter gives it in whole training steps, equals the
// interpreter's result.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>

#include "graph/interpreter.hpp"
#include "graph/model.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/range_costs.hpp"
#include "graph/random_graph.hpp"
#include "graph/small_models.hpp"
#include "graph/split.hpp"
#include "graph/text.hpp"
#include "runtime/op_call.hpp"

namespace shunt::runtime::test {
namespace {

using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::ValueId;
namespace interpreter = graph::test;

/// A value of the interpreter, rounded to what the runtime computes with.
struct Stored {
  std::vector<std::uint32_t> memory;
  View view;

  Stored(const interpreter::Tensor& tensor, graph::Element element) : memory(tensor.data.size()) {
    std::vector<Axis> axes;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i) axes.push_back({tensor.dims[i], tensor.sizes[i], 0});
    view = contiguous(reinterpret_cast<std::byte*>(memory.data()), element, std::move(axes));
    for (std::size_t i = 0; i < tensor.data.size(); ++i) {
      if (element == graph::Element::i32)
        view.i32()[i] = static_cast<std::int32_t>(tensor.data[i]);
      else
        view.f32()[i] = static_cast<float>(tensor.data[i]);
    }
  }
  Stored(const Stored&) = delete;
};

std::vector<std::int32_t> offsets_of(const interpreter::Tensor& plan, std::int64_t num_experts) {
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(num_experts) + 1);
  for (const std::int64_t expert : plan.row_expert) ++offsets[static_cast<std::size_t>(expert) + 1];
  for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  return offsets;
}

bool is_executed(const Op& op) { return graph::lane_of(op) == graph::Lane::compute && op.kind != OpKind::opaque; }

/// Distance in the Euclidean norm, relative to the larger of the value and one per element: small values are
/// differences.
double distance(const interpreter::Tensor& expected, const View& actual) {
  double norm = 0, difference = 0;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double value = actual.element == graph::Element::i32 ? double(actual.i32()[i]) : double(actual.f32()[i]);
    norm += expected.data[i] * expected.data[i];
    difference += (value - expected.data[i]) * (value - expected.data[i]);
  }
  return std::sqrt(difference / std::max(norm, 1e-2));
}

void check_op(const Graph& graph, const Op& op, const interpreter::Values& values) {
  const auto value = [&](ValueId id) -> const interpreter::Tensor& { return values.at(graph.value(id).name); };
  std::vector<std::unique_ptr<Stored>> stored;
  OpCall call{graph, op, {}, {}};
  std::vector<std::int32_t> offsets;
  for (const ValueId operand : op.operands) {
    const graph::Type& type = graph.type(operand);
    stored.push_back(std::make_unique<Stored>(value(operand), type.element));
    call.operands.push_back(stored.back()->view);
    if (type.element != graph::Element::plan) continue;
    for (const graph::DimId dim : type.dims)
      if (graph.dims[dim].role == graph::DimRole::rows)
        offsets = offsets_of(value(operand), graph.dims[graph.dims[dim].groups].size);
    call.expert_offsets = offsets;
  }
  const std::uint32_t overwritten = graph::info(op.kind).writes;
  std::size_t next = 0;  // overwritten operand
  for (const ValueId result : op.results) {
    while (overwritten != 0 && (overwritten >> next & 1) == 0) ++next;
    if (overwritten != 0) {
      call.results.push_back(call.operands[next++]);
      continue;
    }
    interpreter::Tensor blank = value(result);
    blank.data.assign(blank.data.size(), -77);  // an op writes every element
    stored.push_back(std::make_unique<Stored>(blank, graph.type(result).element));
    call.results.push_back(stored.back()->view);
  }
  compute(call);
  for (std::size_t i = 0; i < op.results.size(); ++i)
    EXPECT_LT(distance(value(op.results[i]), call.results[i]), 2e-5)
        << graph::info(op.kind).name << " %" << graph.value(op.results[i]).name;
}

std::set<OpKind> check_all_ops(const Graph& graph, std::uint64_t seed) {
  std::set<OpKind> checked;
  const interpreter::RankValues values = interpreter::interpret(graph, interpreter::random_declarations(graph, seed));
  for (const interpreter::Values& of_rank : values)
    for (const Op& op : graph.ops()) {
      if (!is_executed(op)) continue;
      check_op(graph, op, of_rank);
      checked.insert(op.kind);
    }
  return checked;
}

TEST(Ops, OfRandomGraphsComputeWhatTheInterpreterDoes) {
  std::set<OpKind> checked;
  for (std::uint64_t seed = 0; seed < 150 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    checked.merge(check_all_ops(interpreter::random_step(seed).step, seed));
  }
  for (const graph::OpInfo& op : graph::op_table())
    EXPECT_EQ(checked.contains(op.kind), op.lane == graph::Lane::compute && op.kind != OpKind::opaque) << op.name;
}

class OpsOfModel : public ::testing::TestWithParam<interpreter::SmallModel> {};

TEST_P(OpsOfModel, ComputeWhatTheInterpreterDoes) {
  check_all_ops(graph::build_training_step(interpreter::model_of(GetParam()), 2), 1);
}

TEST_P(OpsOfModel, AreTheSameInParts) {
  const Graph graph = graph::build_training_step(interpreter::model_of(GetParam()), 2);
  const graph::Blocks blocks = graph::find_blocks(graph);
  const auto parts = graph::parts_of_ops(graph, blocks, {{0, blocks.count, 2, graph::BackwardReach::range}});
  check_all_ops(graph::split(graph, parts).graph, 2);
}

INSTANTIATE_TEST_SUITE_P(Small, OpsOfModel, ::testing::ValuesIn(interpreter::small_models()),
                         [](const auto& model) { return model.param.name; });

// More queries than a block has; keys that all heads share.
TEST(Ops, OfAttentionWorkBlockByBlock) {
  const std::string heads =
      "dim B = 1 batch\ndim S = 150 sequence\ndim Z = 150 key\ndim H = 2 heads\ndim D = 3 feature\n";
  const std::string attributes = "{key=[Z], over=[D], scale=0.5, sequence=[S]}";
  for (const std::string keys : {"B,Z,H,D", "B,Z,D"})
    check_all_ops(
        graph::parse("graph g ranks 1\n" + heads + "%q = input() : f32[B,S,H,D] @forward\n%k = input() : f32[" + keys +
                     "] @forward\n%v = input() : f32[B,Z,H,D] @forward\n%d = input() : f32[B,S,H,D] @forward\n" +
                     "%o, %l = attention(%q, %k, %v) " + attributes + " : f32[B,S,H,D], f32[B,S,H] @forward\n" +
                     "%dq, %dk, %dv = attention_dx(%d, %o, %l, %q, %k, %v) " + attributes + " : f32[B,S,H,D], f32[" +
                     keys + "], f32[B,Z,H,D] @backward\nreturn %o\n"),
        3);
}

}  // namespace
}  // namespace shunt::runtime::test
