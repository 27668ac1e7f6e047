#include "plan/agreement.hpp"

#include <string>
#include <type_traits>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

std::string decimal(std::uint64_t value) { return std::to_string(value); }
std::string hexadecimal(std::uint64_t value) { return fmt::format("{:#x}", value); }
std::string layout_name(std::uint64_t value) {
  return value > static_cast<std::uint64_t>(Layout::padded) ? decimal(value)
                                                            : std::string(to_string(static_cast<Layout>(value)));
}
std::string limit(std::uint64_t value) { return value == PlanOptions::kUnlimited ? "unlimited" : decimal(value); }

struct Field {
  const char* name;
  std::uint64_t Agreement::*value;
  std::string (*show)(std::uint64_t);
};

constexpr Field kFields[] = {
    {"hidden", &Agreement::hidden, decimal},           {"dtypes", &Agreement::dtypes, hexadecimal},
    {"flags", &Agreement::flags, hexadecimal},         {"topk", &Agreement::topk, decimal},
    {"layout", &Agreement::layout, layout_name},       {"alignment", &Agreement::alignment, decimal},
    {"capacity", &Agreement::capacity, limit},         {"max_tokens", &Agreement::max_tokens, decimal},
    {"num_experts", &Agreement::num_experts, decimal}, {"expert map", &Agreement::map, hexadecimal},
    {"topology", &Agreement::topology, hexadecimal},
};
static_assert(std::is_trivially_copyable_v<Agreement>);
static_assert(sizeof(Agreement) == std::size(kFields) * sizeof(std::uint64_t), "a field is missing in the table");

}  // namespace

Agreement make_agreement(const EngineShape& shape, std::int32_t topk, const PlanOptions& options, const ExpertMap& map,
                         const Topology& topology) {
  return {.hidden = static_cast<std::uint64_t>(shape.hidden),
          .dtypes = shape.dtypes,
          .flags = shape.flags,
          .topk = static_cast<std::uint64_t>(topk),
          .layout = static_cast<std::uint64_t>(options.layout),
          .alignment = static_cast<std::uint64_t>(options.alignment),
          .capacity = static_cast<std::uint64_t>(options.capacity),
          .max_tokens = static_cast<std::uint64_t>(options.max_tokens),
          .num_experts = static_cast<std::uint64_t>(map.num_experts()),
          .map = map.hash(),
          .topology = topology.hash()};
}

void check_agreement(const Agreement& theirs, RankId peer, const Agreement& ours, RankId self) {
  for (const Field& field : kFields)
    if (theirs.*field.value != ours.*field.value)
      fail(ErrorCode::mismatch, "plan: rank {} has {} {}, rank {} has {}", peer, field.name,
           field.show(theirs.*field.value), self, field.show(ours.*field.value));
}

std::uint64_t hash_of(const Agreement& agreement) {
  Hasher hasher;
  for (const Field& field : kFields) hasher.add(agreement.*field.value);
  return hasher.value();
}

}  // namespace shunt
