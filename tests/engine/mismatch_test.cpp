// Ranks that call different things throw an Error that names both, instead of waiting for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "bench/reference/rows.hpp"
#include "engine/to_everyone.hpp"
#include "shunt/error.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// How the cause is called where hosts compare what ranks do, and where devices of one node do.
struct Cause {
  std::string on_hosts;
  std::string in_node;
};

// What one rank brings to a plan and its dispatch.
struct Request {
  EngineOptions engine = {.hidden = 8, .dtype = f32};
  std::int32_t topk = 2;
  ExpertMap map = ExpertMap::contiguous(4, 2);
  PlanOptions options = {};
};

class MismatchAt : public AtPlace {
 protected:
  [[nodiscard]] bool is_node() const { return kind(2) == EngineKind::node; }

  // Every rank's body must end with the same Error(mismatch), which names ranks 0 and 1 and the cause.
  void expect_mismatch(const std::function<void(World&)>& body, const Cause& cause) const {
    const std::string& text = is_node() ? cause.in_node : cause.on_hosts;
    std::vector<std::string> messages(2);
    const auto run = [&](World& world) {
      try {
        body(world);
        ADD_FAILURE() << "rank " << world.rank().value << " threw nothing, expected: " << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank"), HasSubstr("0"), HasSubstr("1"), HasSubstr(text)));
        const std::string message = error.what();
        messages[world.rank().index()] = message.substr(0, message.find("; rank"));  // then comes where this rank was
      }
    };
    place().run(2, run);
    if (!is_node()) {
      EXPECT_EQ(messages[0], messages[1]) << "the first fault wins";
    }
  }

  void plan_and_dispatch(World& world, const Request& request) const {
    Engine engine(world, place().options(request.engine));
    const std::vector<std::int32_t> experts(static_cast<std::size_t>(2 * request.topk), -1);
    const Plan plan = engine.plan({experts, {}, request.topk}, request.map, request.options);
    (void)engine.dispatch(plan, HostRows(request.engine.dtype, 2, request.engine.hidden).tensor()).wait();
  }

  void expect_mismatch(const Request& of_rank_0, const Request& of_rank_1, const Cause& cause) const {
    expect_mismatch([&](World& world) { plan_and_dispatch(world, world.rank() == RankId(0) ? of_rank_0 : of_rank_1); },
                    cause);
  }
};
INSTANTIATE_TEST_SUITE_P(At, MismatchAt, kThreadPlaces, kNameOfPlace);

constexpr const char* kEngines = "make engines with different options";
constexpr const char* kPlans = "with another map or other options";

TEST_P(MismatchAt, OfEngineOptionsIsNoticed) {
  const auto expect = [&](const EngineOptions& options, const char* cause) {
    expect_mismatch({}, {.engine = options}, {cause, kEngines});
  };
  expect({.hidden = 16, .dtype = f32}, "hidden");
  expect({.hidden = 8, .dtype = bf16}, "has dtype");
  expect({.hidden = 8, .dtype = f32, .expert_dtype = bf16}, "expert_dtype");
  expect({.hidden = 8, .dtype = f32, .result_dtype = bf16}, "result_dtype");
  expect({.hidden = 8, .dtype = f32, .wire_dtype = bf16}, "wire_dtype");
  expect({.hidden = 8, .dtype = f32, .reduction = Reduction::flat}, "reduction");
  if (!place().is_device) expect({.hidden = 8, .dtype = f32, .companions = {.ids = true}}, "companion ids");
}

TEST_P(MismatchAt, OfRoutingAndMapIsNoticed) {
  expect_mismatch({}, {.topk = 3}, {"topk", kPlans});
  expect_mismatch({}, {.map = ExpertMap::contiguous(5, 2)}, {"num_experts", kPlans});
  const auto swapped = ExpertMap::from_placement(4, {{ExpertId(2), ExpertId(3)}, {ExpertId(0), ExpertId(1)}});
  expect_mismatch({}, {.map = swapped}, {"expert map", kPlans});
}

TEST_P(MismatchAt, OfPlanOptionsIsNoticed) {
  expect_mismatch({}, {.options = {.layout = Layout::token_unique}}, {"layout", kPlans});
  expect_mismatch({}, {.options = {.alignment = 8}}, {"alignment", kPlans});
  expect_mismatch({}, {.options = {.capacity = 3}}, {"capacity", kPlans});
}

// `padded` exchanges nothing at plan time, so its first operation notices. On devices its memory is agreed upon once.
TEST_P(MismatchAt, OfPaddedPlansIsNoticed) {
  if (!support_of(Feature::padded).of(kind(2))) GTEST_SKIP() << "no padded rows there";
  const PlanOptions padded = {.layout = Layout::padded, .max_tokens = 4};
  expect_mismatch({.options = padded}, {.options = {.layout = Layout::padded, .max_tokens = 5}},
                  {"different plans", "with different maps or options"});
  expect_mismatch({.options = padded}, {.engine = {.hidden = 16, .dtype = f32}, .options = padded},
                  {"different plans", kEngines});
  if (is_node()) return;  // one rank is on the host and one on the device: so the deadline ends it
  const auto one_is_padded = [&](World& world) {
    plan_and_dispatch(world, {.options = world.rank() == RankId(0) ? padded : PlanOptions{}});
  };
  expect_mismatch(one_is_padded, {place().world == WorldKind::islands ? "different plans" : "dispatch", ""});
}

TEST_P(MismatchAt, OfOperationsIsNoticed) {
  for (const std::string of_rank_0 : {"dispatch", "dispatch_backward"})
    expect_mismatch(
        [&](World& world) {
          ToEveryone shuffle(world, place());
          const Tensor rows = shuffle.answers(1);
          if (world.rank() == RankId(1))
            (void)shuffle.engine().combine(shuffle.plan(), rows).wait();
          else if (of_rank_0 == "dispatch")
            (void)shuffle.dispatch(1).wait();
          else
            (void)shuffle.engine().dispatch_backward(shuffle.plan(), rows).wait();
        },
        {of_rank_0, of_rank_0});
}

TEST_P(MismatchAt, OfPlansThatLookAlikeIsNoticed) {
  expect_mismatch(
      [&](World& world) {
        Engine engine(world, place().options({.hidden = 1, .dtype = f32}));
        const std::vector<std::int32_t> experts = {0};
        const auto make_plan = [&] { return engine.plan({experts, {}, 1}, ExpertMap::contiguous(2, 2)); };
        const Plan first = make_plan();
        const Plan second = make_plan();
        const float x = 1;
        (void)engine.dispatch(world.rank() == RankId(0) ? first : second, borrow(&x, f32, 1, 1)).wait();
      },
      {"different plans", "with another plan"});
}

TEST(Mismatch, OfAWorldsCollectivesIsNoticed) {
  World::spawn(2, [](World& world) {
    const auto differ = [&] { world.rank() == RankId(0) ? world.barrier() : (void)world.split(0); };
    for (const char* name : {"barrier", "split"}) require_error(differ, ErrorCode::mismatch, name);
  });
}

// On devices of one node engines share a stream, so none is outstanding in another.
TEST_P(MismatchAt, EndsEveryOutstandingOperation) {
  if (is_node()) GTEST_SKIP() << "operations of all engines come in the same order there";
  place().run(3, [&](World& world) {
    ToEveryone shuffle(world, place());
    ToEveryone other(world, place());
    auto hopeless = world.rank() == RankId(0) ? std::optional(other.dispatch(1)) : std::nullopt;
    const auto differ = [&] {
      world.barrier();  // else the others might poison the world before the hopeless dispatch is issued
      if (world.rank() == RankId(1))
        (void)shuffle.dispatch(1).wait();
      else
        (void)shuffle.engine().combine(shuffle.plan(), shuffle.answers(1)).wait();
    };
    require_error(differ, ErrorCode::mismatch, "");
    if (hopeless) require_error([&] { (void)hopeless->wait(); }, ErrorCode::mismatch, "");
    EXPECT_THROW((void)shuffle.dispatch(2), Error) << "the world is poisoned";
  });
}

}  // namespace
}  // namespace shunt::test
