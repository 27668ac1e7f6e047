#include "plan/agreement.hpp"

#include <string>
#include <type_traits>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

std::string decimal(std::uint64_t value) { return std::to_string(value); }
std::string hexadecimal(std::uint64_t value) { return fmt::format("{:#x}", value); }
std::string on_off(std::uint64_t value) { return value != 0 ? "on" : "off"; }
std::string reduction(std::uint64_t flat) { return flat != 0 ? "flat" : "tree"; }
std::string limit(std::uint64_t value) { return value == PlanOptions::kUnlimited ? "unlimited" : decimal(value); }
template <class Enum>
std::string name(std::uint64_t value) {
  return std::string(to_string(static_cast<Enum>(value)));
}

struct Field {
  const char* name;
  std::uint64_t Agreement::*value;
  std::string (*show)(std::uint64_t);
};

constexpr Field kFields[] = {
    {"hidden", &Agreement::hidden, decimal},
    {"dtype", &Agreement::dtype, name<DType>},
    {"expert_dtype", &Agreement::expert_dtype, name<DType>},
    {"result_dtype", &Agreement::result_dtype, name<DType>},
    {"wire_dtype", &Agreement::wire_dtype, name<DType>},
    {"reduction", &Agreement::flat, reduction},
    {"companion ids", &Agreement::ids, on_off},
    {"companion weights", &Agreement::weights, on_off},
    {"topk", &Agreement::topk, decimal},
    {"layout", &Agreement::layout, name<Layout>},
    {"alignment", &Agreement::alignment, decimal},
    {"capacity", &Agreement::capacity, limit},
    {"max_tokens", &Agreement::max_tokens, decimal},
    {"packed", &Agreement::packed, decimal},
    {"forwarders", &Agreement::forwarders, name<Forwarders>},
    {"num_experts", &Agreement::num_experts, decimal},
    {"an expert map with hash", &Agreement::map, hexadecimal},
    {"a topology with hash", &Agreement::topology, hexadecimal},
};
static_assert(std::is_trivially_copyable_v<Agreement>);
static_assert(sizeof(Agreement) == std::size(kFields) * sizeof(std::uint64_t), "a field is missing in the table");

}  // namespace

Agreement make_agreement(const EngineShape& shape, std::int32_t topk, const PlanOptions& options, const ExpertMap& map,
                         const Topology& topology) {
  return {.hidden = static_cast<std::uint64_t>(shape.hidden),
          .dtype = static_cast<std::uint64_t>(shape.dtype),
          .expert_dtype = static_cast<std::uint64_t>(shape.expert_dtype),
          .result_dtype = static_cast<std::uint64_t>(shape.result_dtype),
          .wire_dtype = static_cast<std::uint64_t>(shape.wire_dtype),
          .flat = shape.flat,
          .ids = shape.ids,
          .weights = shape.weights,
          .topk = static_cast<std::uint64_t>(topk),
          .layout = static_cast<std::uint64_t>(options.layout),
          .alignment = static_cast<std::uint64_t>(options.alignment),
          .capacity = static_cast<std::uint64_t>(options.capacity),
          .max_tokens = static_cast<std::uint64_t>(options.max_tokens),
          .packed = options.packed,
          .forwarders = static_cast<std::uint64_t>(options.forwarders),
          .num_experts = static_cast<std::uint64_t>(map.num_experts()),
          .map = map.hash(),
          .topology = topology.hash()};
}

void check_agreement(const Agreement& theirs, RankId peer, const Agreement& ours, RankId self) {
  for (const Field& field : kFields)
    if (theirs.*field.value != ours.*field.value)
      fail_because_of(peer, "plan: rank {} has {} {}, rank {} has {}", peer, field.name,
                      field.show(theirs.*field.value), self, field.show(ours.*field.value));
}

std::uint64_t hash_of(const Agreement& agreement) {
  Hasher hasher;
  for (const Field& field : kFields) hasher.add(agreement.*field.value);
  return hasher.value();
}

}  // namespace shunt
