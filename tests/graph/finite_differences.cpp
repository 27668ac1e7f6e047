#include "graph/finite_differences.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "graph/interpreter.hpp"
#include "graph/spread.hpp"

namespace shunt::graph::test {
namespace {

constexpr double kStep = 1e-5;
constexpr int kSamples = 3;

class Differences {
 public:
  Differences(const Graph& forward, RankValues given)
      : forward_(forward), given_(std::move(given)), routing_(routing(interpret(forward, given_))) {}

  /// The difference along one entry of a parameter that these ranks replicate.
  std::optional<double> along(const std::string& param, std::size_t entry, const std::vector<std::size_t>& ranks) {
    const double kept = given_[ranks[0]].at(param).data[entry];
    const auto above = loss_with(param, entry, ranks, kept + kStep);
    const auto below = loss_with(param, entry, ranks, kept - kStep);
    for (const std::size_t rank : ranks) given_[rank].at(param).data[entry] = kept;
    if (!above || !below) return std::nullopt;
    return (*above - *below) / (2 * kStep);
  }

 private:
  using Routing = std::vector<std::vector<double>>;

  [[nodiscard]] Routing routing(const RankValues& values) const {
    Routing all;
    for (const Values& own : values)
      for (const Value& value : forward_.values())
        if (value.type.element == Element::i32) all.push_back(own.at(value.name).data);
    return all;
  }

  std::optional<double> loss_with(const std::string& param, std::size_t entry, const std::vector<std::size_t>& ranks,
                                  double value) {
    for (const std::size_t rank : ranks) given_[rank].at(param).data[entry] = value;
    const RankValues values = interpret(forward_, given_);
    if (routing(values) != routing_) return std::nullopt;
    return global_loss(forward_, values);
  }

  const Graph& forward_;
  RankValues given_;
  Routing routing_;
};

}  // namespace

void expect_finite_differences(const Graph& forward, const Graph& graph,
                               const std::vector<std::pair<ValueId, ValueId>>& gradients, std::uint64_t seed) {
  const RankValues given = random_declarations(forward, seed);
  const RankValues values = interpret(graph, given);
  Differences differences(forward, given);
  const double loss = std::abs(global_loss(graph, values));  // its rounding affects differences
  std::mt19937_64 random(seed);
  for (const auto& [param, gradient] : gradients) {
    const std::string& name = graph.value(param).name;
    const bool is_shared = is_replicated(graph, graph.op(graph.value(param).producer));
    for (int sample = 0; sample < kSamples; ++sample) {
      std::vector<std::size_t> ranks(is_shared ? values.size() : 1);
      if (is_shared)
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = rank;
      else
        ranks[0] = random() % values.size();
      const std::size_t entry = random() % given[0].at(name).data.size();
      double computed = 0;
      for (const std::size_t rank : ranks) computed += values[rank].at(graph.value(gradient).name).data[entry];
      if (const auto expected = differences.along(name, entry, ranks)) {
        EXPECT_NEAR(computed, *expected, 1e-8 + 1e-10 * loss + 1e-5 * std::abs(*expected))
            << name << " entry " << entry;
      }
    }
  }
}

}  // namespace shunt::graph::test
