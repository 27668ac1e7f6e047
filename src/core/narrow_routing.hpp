// A routing with 32-bit experts, which all code behind the public calls reads.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/fail.hpp"
#include "shunt/routing.hpp"

namespace shunt {

/// The call that checks a routing, and its rank if there are several. It becomes text only for an error: formatting
/// takes as long as planning a few tokens.
struct Caller {
  std::string_view call;
  RankId rank = {};

  /// "plan: rank 3", or "prune".
  [[nodiscard]] std::string text() const {
    return rank.valid() ? fmt::format("{}: rank {}", call, rank) : std::string(call);
  }
};

/// The routing itself, or a copy of a routing with 64-bit experts. In host memory.
class NarrowRouting {
 public:
  /// Throws Error(invalid_argument) for an expert beyond 32 bits.
  NarrowRouting(const Routing& routing, const Caller& caller) : routing_(routing) {
    if (!routing.memory.is_host())
      fail(ErrorCode::invalid_argument, "{}: the routing lies on device {}, expected host memory", caller.text(),
           routing.memory.device);
    if (!routing.experts.is_wide()) return;
    using Limits = std::numeric_limits<std::int32_t>;
    ids_.reserve(routing.experts.size());
    for (const std::int64_t id : routing.experts.wide()) {
      if (id < Limits::min() || id > Limits::max())
        fail(ErrorCode::invalid_argument, "{}: token {}: expert {} does not exist", caller.text(),
             routing.topk > 0 ? ids_.size() / static_cast<std::size_t>(routing.topk) : 0, id);
      ids_.push_back(static_cast<std::int32_t>(id));
    }
    routing_.experts = ids_;
  }
  NarrowRouting(const NarrowRouting&) = delete;
  NarrowRouting& operator=(const NarrowRouting&) = delete;

  [[nodiscard]] const Routing& get() const { return routing_; }

 private:
  Routing routing_;
  std::vector<std::int32_t> ids_;
};

}  // namespace shunt
