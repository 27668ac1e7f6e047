// Ranks that call different things learn so, both by name, instead of waiting for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "engine/to_everyone.hpp"
#include "shunt/error.hpp"

namespace shunt::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Every rank's body must end with the same Error(mismatch), which names ranks 0 and 1 and the cause.
void expect_mismatch(const SpawnOptions& options, const std::function<void(World&)>& body, const std::string& cause) {
  std::vector<std::string> messages(2);
  const auto run = [&](World& world) {
    try {
      body(world);
      ADD_FAILURE() << "rank " << world.rank().value << " noticed nothing, expected: " << cause;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr(cause)));
      const std::string text = error.what();
      messages[world.rank().index()] = text.substr(0, text.find("; rank"));  // what follows is where this rank was
    }
  };
  World::spawn(2, run, options);
  EXPECT_EQ(messages[0], messages[1]) << "the first fault wins";
}

const SpawnOptions kIslands = {.kind = WorldKind::islands, .topology = Topology::virtual_nodes(2, 2)};

// Ranks that share memory, and ranks that don't.
void expect_mismatch(const std::function<void(World&)>& body, const std::string& cause) {
  expect_mismatch({}, body, cause);
  expect_mismatch(kIslands, body, cause);
}

// What one rank brings to a plan and its dispatch.
struct Request {
  EngineOptions engine = {.hidden = 8, .dtype = f32};
  std::int32_t topk = 2;
  ExpertMap map = ExpertMap::contiguous(4, 2);
  PlanOptions options = {};
};

void plan_and_dispatch(World& world, const Request& request) {
  Engine engine(world, request.engine);
  const std::vector<std::int32_t> experts(static_cast<std::size_t>(2 * request.topk), -1);
  const Plan plan = engine.plan({experts, {}, request.topk}, request.map, request.options);
  const auto hidden = request.engine.hidden;
  const std::vector<std::byte> x(static_cast<std::size_t>(2 * hidden) * size_of(request.engine.dtype));
  (void)engine.dispatch(plan, borrow(static_cast<const void*>(x.data()), request.engine.dtype, 2, hidden)).wait();
}

void expect_mismatch(const Request& of_rank_0, const Request& of_rank_1, const std::string& cause) {
  expect_mismatch([&](World& world) { plan_and_dispatch(world, world.rank() == RankId(0) ? of_rank_0 : of_rank_1); },
                  cause);
}

TEST(Mismatch, OfEngineOptionsIsNoticed) {
  expect_mismatch({}, {.engine = {.hidden = 16, .dtype = f32}}, "hidden");
  expect_mismatch({}, {.engine = {.hidden = 8, .dtype = bf16}}, "has dtype");
  expect_mismatch({}, {.engine = {.hidden = 8, .dtype = f32, .expert_dtype = bf16}}, "expert_dtype");
  expect_mismatch({}, {.engine = {.hidden = 8, .dtype = f32, .result_dtype = bf16}}, "result_dtype");
  expect_mismatch({}, {.engine = {.hidden = 8, .dtype = f32, .wire_dtype = bf16}}, "wire_dtype");
  expect_mismatch({}, {.engine = {.hidden = 8, .dtype = f32, .reduction = Reduction::flat}}, "reduction");
  expect_mismatch({}, {.engine = {.hidden = 8, .dtype = f32, .companions = {.ids = true}}}, "companion ids");
}

TEST(Mismatch, OfRoutingAndMapIsNoticed) {
  expect_mismatch({}, {.topk = 3}, "topk");
  expect_mismatch({}, {.map = ExpertMap::contiguous(5, 2)}, "num_experts");
  const auto swapped = ExpertMap::from_placement(4, {{ExpertId(2), ExpertId(3)}, {ExpertId(0), ExpertId(1)}});
  expect_mismatch({}, {.map = swapped}, "expert map");
}

TEST(Mismatch, OfPlanOptionsIsNoticed) {
  expect_mismatch({}, {.options = {.layout = Layout::token_unique}}, "layout");
  expect_mismatch({}, {.options = {.alignment = 8}}, "alignment");
  expect_mismatch({}, {.options = {.capacity = 3}}, "capacity");
}

// `padded` exchanges nothing at plan time, so its first operation notices.
TEST(Mismatch, OfPaddedPlansIsNoticedAtDispatch) {
  const PlanOptions padded = {.layout = Layout::padded, .max_tokens = 4};
  expect_mismatch({.options = padded}, {.options = {.layout = Layout::padded, .max_tokens = 5}}, "different plans");
  expect_mismatch({.options = padded}, {.engine = {.hidden = 16, .dtype = f32}, .options = padded}, "different plans");
  const auto one_is_padded = [&](World& world) {
    plan_and_dispatch(world, {.options = world.rank() == RankId(0) ? padded : PlanOptions{}});
  };
  expect_mismatch({}, one_is_padded, "dispatch");
  expect_mismatch(kIslands, one_is_padded, "different plans");
}

TEST(Mismatch, OfOperationsIsNoticed) {
  expect_mismatch(
      [](World& world) {
        ToEveryone shuffle(world);
        if (world.rank() == RankId(0))
          (void)shuffle.dispatch(1).wait();
        else
          (void)shuffle.engine().combine(shuffle.plan(), shuffle.answers(1)).wait();
      },
      "combine");
  expect_mismatch(
      [](World& world) {
        ToEveryone shuffle(world);
        const Tensor rows = shuffle.answers(1);
        if (world.rank() == RankId(0))
          (void)shuffle.engine().dispatch_backward(shuffle.plan(), rows).wait();
        else
          (void)shuffle.engine().combine(shuffle.plan(), rows).wait();
      },
      "dispatch_backward");
}

TEST(Mismatch, OfPlansThatLookAlikeIsNoticed) {
  expect_mismatch(
      [](World& world) {
        Engine engine(world, {.hidden = 1, .dtype = f32});
        const std::vector<std::int32_t> experts = {0};
        const auto make_plan = [&] { return engine.plan({experts, {}, 1}, ExpertMap::contiguous(2, 2)); };
        const Plan first = make_plan();
        const Plan second = make_plan();
        const float x = 1;
        (void)engine.dispatch(world.rank() == RankId(0) ? first : second, borrow(&x, f32, 1, 1)).wait();
      },
      "different plans");
}

TEST(Mismatch, EndsEveryOutstandingOperation) {
  World::spawn(3, [](World& world) {
    ToEveryone shuffle(world);
    ToEveryone other(world);
    auto hopeless = world.rank() == RankId(0) ? std::optional(other.dispatch(1)) : std::nullopt;
    try {
      world.barrier();  // else the others might poison the world before the hopeless dispatch is issued
      if (world.rank() == RankId(1))
        (void)shuffle.dispatch(1).wait();
      else
        (void)shuffle.engine().combine(shuffle.plan(), shuffle.answers(1)).wait();
      ADD_FAILURE() << "noticed nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
    }
    if (hopeless) {
      EXPECT_THROW((void)hopeless->wait(), Error);
    }
    EXPECT_THROW((void)shuffle.dispatch(2), Error) << "the world is poisoned";
  });
}

}  // namespace
}  // namespace shunt::test
