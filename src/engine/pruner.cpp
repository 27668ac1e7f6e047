#include <string>

#include "core/fail.hpp"
#include "engine/device_library.hpp"
#include "plan/prune.hpp"
#include "plan/request.hpp"

namespace shunt {

Pruner::Pruner(const ExpertMap& map, const Topology& topology, const PruneOptions& options, std::int64_t max_tokens,
               Memory memory) {
  check_pruning(Routing{}, 0, map, topology, options);
  if (max_tokens < 0) fail(ErrorCode::invalid_argument, "prune: max_tokens is {}, expected 0 or more", max_tokens);
  if (memory.is_host())
    fail(ErrorCode::unsupported, "prune: a Pruner is for devices; for host memory there is prune()");
  impl_ = require_device_library().make_pruner(map, topology, options, max_tokens, memory);
}

void Pruner::prune(const Routing& routing, const float* scores, std::int32_t* experts, float* weights, Stream stream) {
  const auto demand = [](bool holds, const std::string& what, ErrorCode code = ErrorCode::invalid_argument) {
    if (!holds) fail(code, "prune: {}", what);
  };
  demand(!routing.experts.is_wide(), "experts are of 64 bits, expected 32", ErrorCode::unsupported);
  check_routing(routing, {"prune"});
  const auto num_tokens = static_cast<std::int64_t>(routing.num_tokens());
  demand(num_tokens <= impl_->max_tokens, fmt::format("{} tokens, max_tokens is {}", num_tokens, impl_->max_tokens));
  if (num_tokens > 0) {
    demand(routing.memory == impl_->memory, fmt::format("the routing does not lie on device {}", impl_->memory.device));
    demand(routing.experts.data(), "the routing names no experts");
    demand(experts && weights, "there is no memory for the pruned routing");
    demand(experts != routing.experts.data() && weights != routing.weights.data(),
           "the pruned routing can't take the routing's place");
  }
  impl_->prune(routing, scores, experts, weights, stream);
}

PruneReport Pruner::report(Stream stream) const { return impl_->report(stream); }

}  // namespace shunt
