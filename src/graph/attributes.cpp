#include "graph/attributes.hpp"

#include <algorithm>

namespace shunt::graph {

Attributes::Attributes(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) set(entry.first, entry.second);
}

void Attributes::set(std::string name, Attribute value) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, const auto& n) { return e.first < n; });
  if (at != entries_.end() && at->first == name)
    at->second = std::move(value);
  else
    entries_.emplace(at, std::move(name), std::move(value));
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

std::int64_t Attributes::integer(std::string_view name, std::int64_t fallback) const {
  const Attribute* value = find(name);
  return value ? std::get<std::int64_t>(*value) : fallback;
}

double Attributes::real(std::string_view name, double fallback) const {
  const Attribute* value = find(name);
  return value ? std::get<double>(*value) : fallback;
}

std::string_view Attributes::text(std::string_view name) const {
  const Attribute* value = find(name);
  return value ? std::string_view(std::get<std::string>(*value)) : std::string_view();
}

const std::vector<DimId>& Attributes::dims(std::string_view name) const {
  static const std::vector<DimId> none;
  const Attribute* value = find(name);
  return value ? std::get<std::vector<DimId>>(*value) : none;
}

}  // namespace shunt::graph
