// Made-up routings whose structure is known, to test placement with and to try it out.
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
  std::int64_t tokens = 65'536;  ///< of a layer
  std::int32_t groups = 8;       ///< of `clustered`
  double exponent = 1;           ///< of `zipf`
  std::uint64_t seed = 1;
};

class TokenGenerator {
 public:
  virtual ~TokenGenerator() = default;
  /// The next token's experts, all different; `experts` has topk places.
  virtual void draw(std::span<std::int32_t> experts) = 0;
};

/// uniform    every expert equally likely
/// zipf       the i-th expert of a shuffled order in proportion to 1/i^exponent
/// clustered  experts in `groups` disjoint groups of equal size; a token's experts are all from one, as far as it goes
/// topics     experts / 4 topics of 4 to 24 experts, an expert in 1 to 3 of them, of zipf popularity (exponent 1). A
///            token takes an expert from its first topic with a chance of 70 %, from its second with 20 %, else from
///            anywhere, as it does where a topic has no more
/// drift      topics; after half of the tokens, popularity is drawn anew and a tenth of the experts change their topics
///
/// Throws Error(invalid_argument) for other kinds and for options that are out of range. A layer's tokens depend on
/// (options, layer) alone.
std::unique_ptr<TokenGenerator> make_generator(const std::string& kind, const GenerateOptions& options,
                                               std::int32_t layer);

}  // namespace shunt::placement
