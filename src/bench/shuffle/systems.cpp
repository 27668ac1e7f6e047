#include "bench/shuffle/systems.hpp"

#include "core/wiring.hpp"
#include "plan/plan_data.hpp"

namespace shunt::bench {

void verify(const std::string& name, System& system, const Verifier& verifier) {
  system.plan();
  const ConstTensor rows = system.dispatch();
  verifier.check_dispatch(name, {rows, rows.rows, system.scales(), system.row_counts()});
  verifier.fill_expert_out(system.expert_out());
  verifier.check_combine(name, system.combine());
}

ShuntSystem::ShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload, const Tensor& tokens,
                         Forwarders forwarders)
    : config_(config),
      routing_(workload.routing(world.rank().index()).view(config.topk)),
      tokens_(tokens),
      map_(config.map()),
      forwarders_(forwarders),
      engine_(world, {.hidden = config.hidden, .dtype = config.dtype}) {}

void ShuntSystem::plan() {
  PlanOptions options;
  options.layout = config_.layout;
  options.forwarders = forwarders_;
  options.max_tokens = max_tokens();
  plan_ = engine_.plan(routing_, map_, options);
}

// Old outputs are released first, so that the pool hands the same pages out again.
ConstTensor ShuntSystem::dispatch() {
  rows_ = {};
  rows_ = engine_.dispatch(plan_, tokens_).wait();
  return rows_.data;
}

std::vector<std::int64_t> ShuntSystem::row_counts() const {
  if (config_.layout == Layout::padded) return {rows_.source_counts.begin(), rows_.source_counts.end()};
  return {plan_.expert_counts().begin(), plan_.expert_counts().end()};
}

Tensor ShuntSystem::expert_out() {
  if (!expert_out_.data || expert_out_.rows != plan_.num_rows()) expert_out_ = engine_.expert_out(plan_);
  return expert_out_;
}

bool ShuntSystem::sends_to_hosts() const { return !plan_.data()->wiring.is_one_host(); }

std::vector<std::uint64_t> ShuntSystem::bytes_to_far() const {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(config_.ranks));
  for (const OutFlow& flow : plan_.data()->out_flows)
    bytes[flow.forwarder.index()] = flow.tokens.size() * config_.row_bytes();
  return bytes;
}

ConstTensor ShuntSystem::combine() {
  result_ = {};
  result_ = engine_.combine(plan_, expert_out_).wait();
  return result_;
}

}  // namespace shunt::bench
