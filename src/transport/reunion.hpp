// How the survivors of a fault make a new world of themselves.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace shunt {

class Reunion;

struct Joined {
  std::shared_ptr<Transport> transport;
  std::unique_ptr<Reunion> reunion;
};

/// What a rank keeps for the day when another one is lost.
class Reunion {
 public:
  struct Outcome {
    Joined joined;
    std::vector<RankId> survivors;  ///< what the new ranks were, ascending
  };

  virtual ~Reunion() = default;

  /// Collective over the ranks of `old` that are left after its fault, once. They meet within the limit, in memory and
  /// with connections that no other rank of `old` knows. Throws as net::meet_survivors and joining do.
  virtual Outcome hold(Transport& old, std::chrono::milliseconds limit) = 0;
};

}  // namespace shunt
