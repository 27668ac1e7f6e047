// Synthetic routings with known structure, for testing and trying out placement.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "placement/random.hpp"

namespace shunt::placement {

struct GenerateOptions {
  std::int32_t experts = 64;
  std::int32_t topk = 8;
  std::int64_t tokens = 65'536;  ///< per layer
  std::int32_t groups = 8;       ///< for `clustered`
  double exponent = 1;           ///< for `zipf`
  std::uint64_t seed = 1;
};

class TokenGenerator {
 public:
  virtual ~TokenGenerator() = default;
  /// Writes the next token's experts, all different; experts.size() is topk.
  virtual void draw(std::span<std::int32_t> experts) = 0;
};

/// uniform    every expert is equally likely
/// zipf       the i-th expert of a shuffled order has a probability proportional to 1/i^exponent
/// clustered  `groups` disjoint groups of equal size; a token's experts come from one group, as far as it suffices
/// topics     experts / 4 topics of 4 to 24 experts, each expert in 1 to 3 of them, with zipf popularity (exponent 1).
/// A
///            token takes an expert from its first topic with a probability of 70 %, from its second with 20 %, else
///            from any topic, also if a topic has no more experts
/// drift      topics; after half of the tokens, popularity is drawn anew and a tenth of the experts change their topics
///
/// Throws Error(invalid_argument) for other kinds and for options that are out of range. A layer's tokens depend only
/// on (options, layer).
std::unique_ptr<TokenGenerator> make_generator(const std::string& kind, const GenerateOptions& options,
                                               std::int32_t layer);

}  // namespace shunt::placement
