#include "placement/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.hpp"
#include "shunt/routing.hpp"

namespace shunt::placement {
namespace {

/// Draws an index with a probability proportional to its weight.
class WeightedDraw {
 public:
  WeightedDraw() = default;
  explicit WeightedDraw(std::span<const double> weights) {
    double sum = 0;
    for (const double weight : weights) sums_.push_back(sum += weight);
  }
  [[nodiscard]] std::size_t draw(Random& random) const {
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), random.unit() * sums_.back());
    return std::min(static_cast<std::size_t>(found - sums_.begin()), sums_.size() - 1);
  }

 private:
  std::vector<double> sums_;
};

std::vector<double> zipf_weights(std::size_t count, double exponent) {
  std::vector<double> weights;
  for (std::size_t i = 1; i <= count; ++i) weights.push_back(std::pow(static_cast<double>(i), -exponent));
  return weights;
}

/// Collects a token's experts without repetition.
class Pick {
 public:
  explicit Pick(std::span<std::int32_t> experts) : experts_(experts) {}
  [[nodiscard]] bool is_full() const { return count_ == experts_.size(); }
  bool add(std::int32_t expert) {
    const auto end = experts_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (std::find(experts_.begin(), end, expert) != end) return false;
    experts_[count_++] = expert;
    return true;
  }
  /// Adds an expert of `from` that was not taken yet; false if there is none.
  bool add_from(std::span<const std::int32_t> from, Random& random) {
    if (from.empty()) return false;
    const std::size_t begin = random.below(from.size());
    // A linear search from a random start would favour experts behind taken ones, so a few draws come first.
    for (int i = 0; i < 8; ++i)
      if (add(from[random.below(from.size())])) return true;
    for (std::size_t i = 0; i < from.size(); ++i)
      if (add(from[(begin + i) % from.size()])) return true;
    return false;
  }

 private:
  std::span<std::int32_t> experts_;
  std::size_t count_ = 0;
};

class Weighted final : public TokenGenerator {
 public:
  Weighted(std::vector<double> weights, Random random) : draw_(weights), random_(random) {}
  void draw(std::span<std::int32_t> experts) override {
    for (Pick pick(experts); !pick.is_full();) pick.add(static_cast<std::int32_t>(draw_.draw(random_)));
  }

 private:
  WeightedDraw draw_;
  Random random_;
};

std::vector<std::int32_t> shuffled_experts(std::size_t count, Random& random) {
  std::vector<std::int32_t> experts(count);
  std::iota(experts.begin(), experts.end(), 0);
  random.shuffle(experts);
  return experts;
}

class Clustered final : public TokenGenerator {
 public:
  Clustered(std::size_t num_experts, std::size_t num_groups, Random random)
      : all_(shuffled_experts(num_experts, random)), groups_(num_groups), random_(random) {
    for (std::size_t i = 0; i < all_.size(); ++i) groups_[i * num_groups / all_.size()].push_back(all_[i]);
  }
  void draw(std::span<std::int32_t> experts) override {
    const auto& group = groups_[random_.below(groups_.size())];
    for (Pick pick(experts); !pick.is_full();)
      if (!pick.add_from(group, random_)) pick.add_from(all_, random_);
  }

 private:
  std::vector<std::int32_t> all_;
  std::vector<std::vector<std::int32_t>> groups_;
  Random random_;
};

class Topics final : public TokenGenerator {
 public:
  /// drifts_after: number of tokens; −1: never.
  Topics(std::size_t num_experts, std::int64_t drifts_after, Random random)
      : topics_of_(num_experts),
        topics_(std::max<std::size_t>(1, num_experts / 4)),
        all_(shuffled_experts(num_experts, random)),
        drifts_after_(drifts_after),
        random_(random) {
    for (std::size_t expert = 0; expert < num_experts; ++expert) choose_topics(expert);
    finish_topics();
  }

  void draw(std::span<std::int32_t> experts) override {
    if (drifts_after_-- == 0) drift();
    const std::size_t first = popularity_.draw(random_);
    std::size_t second = popularity_.draw(random_);
    while (second == first && topics_.size() > 1) second = popularity_.draw(random_);
    for (Pick pick(experts); !pick.is_full();) {
      const double chance = random_.unit();
      const bool is_topical = chance < 0.9 && pick.add_from(topics_[chance < 0.7 ? first : second], random_);
      if (!is_topical) pick.add_from(all_, random_);
    }
  }

 private:
  static constexpr std::size_t kLeast = 4, kMost = 24, kTopicsOfExpert = 3;

  [[nodiscard]] std::size_t most_topics() const { return std::min(kTopicsOfExpert, topics_.size()); }

  void choose_topics(std::size_t expert) {
    auto& of = topics_of_[expert];
    of.clear();
    const std::size_t count = 1 + random_.below(most_topics());
    while (of.size() < count)
      if (const std::size_t topic = random_.below(topics_.size()); std::find(of.begin(), of.end(), topic) == of.end())
        of.push_back(topic);
  }

  /// Corrects topics that are too small or too large, then draws their popularity.
  void finish_topics() {
    const auto size = [&](std::size_t topic) {
      return static_cast<std::size_t>(std::count_if(topics_of_.begin(), topics_of_.end(), [&](const auto& of) {
        return std::find(of.begin(), of.end(), topic) != of.end();
      }));
    };
    const std::size_t least = std::min(kLeast, topics_of_.size());
    for (std::size_t topic = 0; topic < topics_.size(); ++topic) {
      while (size(topic) < least) {
        auto& of = topics_of_[random_.below(topics_of_.size())];
        if (of.size() < most_topics() && std::find(of.begin(), of.end(), topic) == of.end()) of.push_back(topic);
      }
      while (size(topic) > kMost) {
        auto& of = topics_of_[random_.below(topics_of_.size())];
        if (of.size() > 1) std::erase(of, topic);
      }
    }
    for (auto& topic : topics_) topic.clear();
    for (std::size_t expert = 0; expert < topics_of_.size(); ++expert)
      for (const std::size_t topic : topics_of_[expert]) topics_[topic].push_back(static_cast<std::int32_t>(expert));
    std::vector<double> weights = zipf_weights(topics_.size(), 1);
    random_.shuffle(weights);
    popularity_ = WeightedDraw(weights);
  }

  void drift() {
    const std::vector<std::int32_t> order = shuffled_experts(topics_of_.size(), random_);
    for (std::size_t i = 0; i < order.size() / 10; ++i) choose_topics(static_cast<std::size_t>(order[i]));
    finish_topics();
  }

  std::vector<std::vector<std::size_t>> topics_of_;  // by expert
  std::vector<std::vector<std::int32_t>> topics_;    // their experts
  std::vector<std::int32_t> all_;
  WeightedDraw popularity_;
  std::int64_t drifts_after_;
  Random random_;
};

}  // namespace

std::unique_ptr<TokenGenerator> make_generator(const std::string& kind, const GenerateOptions& options,
                                               std::int32_t layer) {
  const auto demand = [](bool holds, const char* what) {
    if (!holds) fail(ErrorCode::invalid_argument, "generate: {}", what);
  };
  demand(options.experts >= 1 && options.experts < 0xffff, "experts: expected 1 to 65534");
  demand(options.topk >= 1 && options.topk <= std::min(options.experts, Routing::kMaxTopK),
         "topk: expected 1 to the number of experts, at most 64");
  demand(options.tokens >= 1, "tokens: expected at least 1");
  const auto num_experts = static_cast<std::size_t>(options.experts);
  Random random(options.seed * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(layer));
  if (kind == "uniform") return std::make_unique<Weighted>(std::vector<double>(num_experts, 1.0), random);
  if (kind == "zipf") {
    demand(options.exponent >= 0 && options.exponent <= 4, "exponent: expected 0 to 4");
    std::vector<double> weights = zipf_weights(num_experts, options.exponent);
    random.shuffle(weights);
    return std::make_unique<Weighted>(std::move(weights), random);
  }
  if (kind == "clustered") {
    demand(options.groups >= 1 && options.groups <= options.experts, "groups: expected 1 to the number of experts");
    return std::make_unique<Clustered>(num_experts, static_cast<std::size_t>(options.groups), random);
  }
  if (kind == "topics") return std::make_unique<Topics>(num_experts, -1, random);
  if (kind == "drift") return std::make_unique<Topics>(num_experts, options.tokens / 2, random);
  fail(ErrorCode::invalid_argument, "generate: no kind '{}', expected clustered, topics, zipf, uniform or drift", kind);
}

}  // namespace shunt::placement
