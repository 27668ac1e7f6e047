#include "support/shuffle_case.hpp"

#include <fmt/format.h>

#include <array>

#include "support/dice.hpp"

namespace shunt::test {
namespace {

DType random_float_type(Dice& dice) { return dice.pick({f32, bf16, f16}); }

std::optional<DType> maybe_float_type(Dice& dice) {
  return dice.one_in(3) ? std::nullopt : std::optional(random_float_type(dice));
}

CaseLimits draw_limits(Dice& dice) {
  if (dice.one_in(20)) return {.experts = 80, .topk = Routing::kMaxTopK, .tokens = 4};
  return {.tokens = dice.pick({1, 4, 8, 16})};
}

Paths draw_paths(Dice& dice) {
  using enum Way::Spot;
  const auto input = [&] { return Way{dice.pick({host, shifted, allocated}), dice.one_in(5)}; };
  const auto output = [&] { return Way{dice.pick({absent, host, shifted, allocated}), dice.one_in(5)}; };
  return {.x = input(),
          .dispatch_out = output(),
          .expert_out = input(),
          .combine_out = output(),
          .routing = dice.pick({host, allocated}),
          .has_wide_ids = dice.one_in(2),
          .spare_rows = dice.one_in(2) ? std::optional<std::int64_t>(dice.pick({0, 1, 7})) : std::nullopt,
          .is_packed = dice.one_in(3),
          .has_rows_with_plan = dice.one_in(2)};
}

std::string name(const Way& way) {
  constexpr std::array kNames = {"absent", "host", "shifted", "allocated"};
  return fmt::format("{}{}", kNames.at(static_cast<std::size_t>(way.spot)), way.is_strided ? " strided" : "");
}

std::string name(const std::optional<DType>& dtype) { return dtype ? std::string(to_string(*dtype)) : "default"; }

std::string name(const PlanOptions& options) {
  std::string text(to_string(options.layout));
  if (options.alignment > 1) text += fmt::format(" aligned to {}", options.alignment);
  if (options.capacity != PlanOptions::kUnlimited) text += fmt::format(" capacity {}", options.capacity);
  if (options.forwarders == Forwarders::rotated) text += " rotated";
  if (options.layout == Layout::padded) text += fmt::format(" max_tokens {}", options.max_tokens);
  return text;
}

}  // namespace

std::string ShuffleCase::describe() const {
  std::string tokens;
  for (const RankRouting& rank : routing.ranks)
    tokens +=
        fmt::format("{}{}", tokens.empty() ? "" : "+", rank.experts.size() / static_cast<std::size_t>(routing.topk));
  return fmt::format(
      "{} ranks on {} nodes, {} experts in {} copies, tokens {}, topk {}, {}, hidden {}, rows {} from {}, expert {}, "
      "result {}, wire {}, {}{}{}, x {}, dispatch out {}, expert_out {}, combine out {}, routing {}, ids of {} bits, "
      "{} rows to spare{}{}",
      routing.topology.num_ranks(), routing.topology.num_nodes(), routing.map.num_experts(), routing.map.num_physical(),
      tokens, routing.topk, name(routing.options), options.hidden, to_string(options.dtype), to_string(x[0].dtype()),
      name(options.expert_dtype), name(options.result_dtype), name(options.wire_dtype),
      options.reduction == Reduction::flat ? "flat" : "tree", options.companions.ids ? ", ids" : "",
      options.companions.weights ? ", weights" : "", name(paths.x), name(paths.dispatch_out), name(paths.expert_out),
      name(paths.combine_out), name(Way{paths.routing}), paths.has_wide_ids ? 64 : 32, paths.spare_rows.value_or(-1),
      paths.is_packed ? ", packed" : "", paths.has_rows_with_plan ? ", rows with the plan" : "");
}

ShuffleCase random_shuffle_case(std::uint64_t seed, const Topology& topology,
                                const std::optional<EngineOptions>& options, const std::optional<CaseLimits>& limits) {
  std::mt19937_64 generator(seed);
  Dice dice(generator);
  ShuffleCase all{{},
                  seed,
                  random_case(generator, topology, limits ? *limits : draw_limits(dice)),
                  options ? *options : random_engine_options(seed),
                  draw_paths(dice)};
  const RandomCase& routing = all.routing;
  if (!options && routing.options.layout != Layout::token_unique && seed % 3 == 0)
    all.options.reduction = Reduction::flat;
  const ReferenceShuffle reference(routing.routings(), routing.map, routing.topology, routing.options, all.options);
  std::mt19937_64 values(seed);
  Dice value_dice(values);
  const DType dtype = reference.options().dtype;
  const bool is_narrow = dtype != fp8_e4m3 || value_dice.one_in(2);
  all.draw(reference, is_narrow ? dtype : random_float_type(value_dice), value_dice);
  return all;
}

std::vector<ShuffleCase> draw_cases(std::size_t count, const Topology& topology,
                                    const std::function<std::optional<EngineOptions>(std::uint64_t)>& options,
                                    const std::optional<CaseLimits>& limits,
                                    const std::function<bool(const ShuffleCase&)>& suits) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, options(seed), limits); !suits || suits(drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

EngineOptions random_engine_options(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  Dice dice(generator);
  EngineOptions options;
  options.hidden = dice.pick<std::int64_t>({1, 3, 31, 32, 33, 64, 127, 128, 130, 200, 257});
  options.dtype = dice.pick({f32, bf16, f16, fp8_e4m3});
  options.expert_dtype = maybe_float_type(dice);
  options.result_dtype = maybe_float_type(dice);
  options.wire_dtype = maybe_float_type(dice);
  options.companions = {.ids = dice.one_in(2), .weights = dice.one_in(2)};
  return options;
}

}  // namespace shunt::test
