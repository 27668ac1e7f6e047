#include "graph/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/model.hpp"
#include "graph/small_models.hpp"
#include "graph/verify.hpp"
#include "shunt/error.hpp"

namespace shunt::graph {
namespace {

std::string error_of(const std::string& text) {
  try {
    verify(parse(text, "here"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

const std::string kHead =
    "graph g ranks 2\n"
    "dim B = 4 batch\n"
    "dim M = 8 feature\n"
    "dim N = 8 feature\n"
    "%x = input() : f32[B,M] @forward\n"
    "%w = param() : f32[M,N] @0.forward\n";

TEST(Text, PrintsAndParsesBackToTheSameGraph) {
  for (const char* name : {"tiny", "gpt2-s-moe", "olmoe", "deepseek-v3"}) {
    const Graph graph = build_training_step(Model::load(name, "v100"), 64);
    verify(graph);
    const std::string text = print(graph);
    const Graph again = parse(text);
    verify(again);
    EXPECT_EQ(print(again), text) << name;
    EXPECT_EQ(again.hash(), graph.hash());
  }
}

TEST(Text, ReadsPartsProductsCommentsAndMicroBatches) {
  const Graph graph = parse(kHead +
                            "# a comment\n"
                            "dim T = B*M\n"
                            "%p = part(%x) {to=[B.1/3]} : f32[B.1/3,M] @2.forward.m1  # and another\n"
                            "%o = opaque(%x, %p) {cost_us=2.5, name=\"a \\\"b\\\"\"} : f32[T] @backward\n"
                            "return %p, %o\n");
  verify(graph);
  const Dim& part = graph.dims[graph.type(graph.outputs[0]).dims[0]];
  EXPECT_EQ(part.part, 1);
  EXPECT_EQ(part.parts, 3);
  EXPECT_EQ(part.size, 1);
  EXPECT_EQ(graph.op(OpId(2)).origin.micro_batch, 1);
  EXPECT_EQ(print(parse(print(graph))), print(graph));
}

TEST(Text, ReportsThePositionAndWhatWasExpected) {
  EXPECT_THAT(error_of(""), testing::HasSubstr("here:1:1: expected 'graph NAME ranks N'"));
  EXPECT_THAT(error_of("graph g ranks 0\n"), testing::HasSubstr("here:1:15: expected 1 to"));
  EXPECT_THAT(error_of(kHead), testing::HasSubstr("expected an op or 'return' but found the end"));
  EXPECT_THAT(error_of(kHead + "%y = matmul(%x, %w {over=[M]} : f32[B,N] @forward\n"),
              testing::HasSubstr("here:7:20: expected ')' but found '{'"));
  EXPECT_THAT(error_of(kHead + "%y = matmull(%x)\n"),
              testing::HasSubstr("here:7:6: expected an op but found 'matmull'"));
  EXPECT_THAT(error_of(kHead + "%y = matmul(%x, %z) {over=[M]}\n"),
              testing::HasSubstr("here:7:17: %z is not defined above"));
  EXPECT_THAT(error_of(kHead + "%y = matmul(%x, %w) {over=[Q]}\n"),
              testing::HasSubstr("here:7:28: expected a declared dimension but found 'Q'"));
  EXPECT_THAT(error_of(kHead + "%y = matmul(%x, %w) {over=[M]} : f32[B,M] @forward\n"),
              testing::HasSubstr("here:7:34: expected f32[B,N], which matmul gives, but found f32[B,M]"));
  EXPECT_THAT(error_of(kHead + "%y = matmul(%x, %w) {over=[N]} : f32[B,M] @forward\n"),
              testing::HasSubstr("here:7:6: matmul: operand 0 is [B,M], expected it to have [N]"));
  EXPECT_THAT(error_of(kHead + "%y = matmul(%x, %w) : f32[B,N] @forward\n"),
              testing::HasSubstr("here:7:6: matmul: attribute over (dims) is missing"));
  EXPECT_THAT(error_of(kHead + "%x = input() : f32[B] @forward\n"),
              testing::HasSubstr("here:7:1: %x is defined twice"));
  EXPECT_THAT(error_of(kHead + "dim B = 3 batch\n"), testing::HasSubstr("here:7:5: dimension B is declared twice"));
  EXPECT_THAT(error_of(kHead + "%y = scale(%x) {by=1} : f32[B,M] @forward\n"),
              testing::HasSubstr("attribute by is of kind int, expected real"));
  EXPECT_THAT(error_of(kHead + "return %x\n%y\n"), testing::HasSubstr("here:8:1: expected nothing after 'return'"));
}

TEST(Verify, RefusesAParameterReadAfterItsUpdate) {
  EXPECT_THAT(error_of(kHead + "%n = sgd(%w, %w) {rate=0.5} : f32[M,N] @update\n"
                               "%y = matmul(%x, %w) {over=[M]} : f32[B,N] @forward\n"
                               "return %y\n"),
              testing::HasSubstr("matmul reads %w, which an update has overwritten"));
}

TEST(Verify, RefusesAReadOfWhatAnAllReduceHasOverwritten) {
  const std::string reduced = "%y = scale(%x) {by=2.0} : f32[B,M] @forward\n";
  const std::string reduce = "%r = all_reduce(%y) : f32[B,M] @forward\n";
  const auto reads = [](const std::string& value) {
    return "%z = scale(%" + value + ") {by=2.0} : f32[B,M] @forward\nreturn %r\n";
  };
  EXPECT_EQ(error_of(kHead + reduced + reads("y").substr(0, reads("y").find("return")) + reduce + "return %r\n"), "");
  EXPECT_EQ(error_of(kHead + reduced + reduce + reads("r")), "");
  EXPECT_THAT(error_of(kHead + reduced + reduce + reads("y")),
              testing::HasSubstr("scale reads %y, which an all_reduce has overwritten"));
  EXPECT_THAT(error_of(kHead + reduced + reduce + "return %y\n"), testing::HasSubstr("return reads %y"));
}

TEST(Verify, TreatsViewsAsOverwrittenWithTheirBase) {
  const std::string renamed =
      "dim C = 4 batch\n%y = scale(%x) {by=2.0} : f32[B,M] @forward\n"
      "%v = rename(%y) {from=[B], to=[C]} : f32[C,M] @forward\n";
  EXPECT_THAT(error_of(kHead + renamed + "%r = all_reduce(%v) : f32[C,M] @forward\nreturn %r, %y\n"),
              testing::HasSubstr("return reads %y, which an all_reduce has overwritten"));
  EXPECT_THAT(error_of(kHead + renamed + "%r = all_reduce(%y) : f32[B,M] @forward\nreturn %r, %v\n"),
              testing::HasSubstr("return reads %v, which an all_reduce has overwritten"));
}

TEST(Verify, RefusesAnAllReduceOfWhatTheNextStepNeeds) {
  EXPECT_THAT(error_of(kHead + "%r = all_reduce(%w) : f32[M,N] @forward\nreturn %r\n"),
              testing::HasSubstr("all_reduce overwrites %w, which the next step needs"));
}

TEST(Verify, RefusesRowsOfTwoPlans) {
  const std::string head =
      "graph g ranks 2\ndim B = 4 batch\ndim X = 1 local_expert\ndim E = 2 expert\n"
      "dim K = 1 choice\ndim R = 4 rows of X\n%e = input() : i32[B,K] @forward\n";
  const auto plan = [](const char* name) {
    return std::string("%") + name + " = plan(%e) {expert=[E], rows=[R]} : plan[B,K,R] @forward\n";
  };
  EXPECT_EQ(error_of(head + plan("a") + "return %a\n"), "");
  EXPECT_THAT(error_of(head + plan("a") + plan("b") + "return %a\n"),
              testing::HasSubstr("R are the rows of two plans"));
}

TEST(Verify, RefusesRowsWithoutAPlan) {
  EXPECT_THAT(error_of("graph g ranks 1\ndim X = 2 local_expert\ndim R = 4 rows of X\n"
                       "%x = input() : f32[R] @forward\nreturn %x\n"),
              testing::HasSubstr("%x has rows R, which no operand of input brings"));
}

TEST(Verify, RefusesExpertsThatNoRankHas) {
  EXPECT_THAT(error_of("graph g ranks 2\ndim B = 4 batch\ndim X = 2 local_expert\ndim E = 5 expert\ndim K = 1 choice\n"
                       "dim R = 4 rows of X\n%e = input() : i32[B,K] @forward\n"
                       "%p = plan(%e) {expert=[E], rows=[R]} : plan[B,K,R] @forward\nreturn %p\n"),
              testing::HasSubstr("5 experts, but 2 on each of 2 ranks"));
}

TEST(Verify, RefusesAValueUsedBeforeItsDefinition) {
  const Graph graph = parse(kHead + "%y = matmul(%x, %w) {over=[M]} : f32[B,N] @forward\nreturn %y\n");
  const std::vector<OpId> order = {OpId(0), OpId(2), OpId(1)};
  EXPECT_THROW(verify(graph.reordered(order)), Error);
}

}  // namespace
}  // namespace shunt::graph
