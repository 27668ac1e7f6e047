#include "graph/cost_table.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.hpp"
#include "core/file.hpp"
#include "core/json_fields.hpp"

namespace shunt::graph {
namespace {

constexpr int kVersion = 2;
constexpr double kMostSeconds = 1e4;

/// "0.2" is the third dimension of the first operand; results follow operands. A dimension of neither is identified by
/// its size.
std::string place_of(const Graph& graph, const Op& op, DimId dim) {
  std::vector<ValueId> values = op.operands;
  values.insert(values.end(), op.results.begin(), op.results.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& dims = graph.type(values[i]).dims;
    const auto found = std::find(dims.begin(), dims.end(), dim);
    if (found != dims.end()) return fmt::format("{}.{}", i, found - dims.begin());
  }
  return fmt::format("[{}]", graph.dims[dim].size);
}

}  // namespace

std::string cost_key(const Graph& graph, const Op& op) {
  std::string key(info(op.kind).name);
  const auto add = [&](ValueId value) {
    key += fmt::format(" {}", to_string(graph.type(value).element));
    for (const DimId dim : graph.type(value).dims) key += fmt::format(",{}", graph.dims[dim].size);
  };
  for (const ValueId operand : op.operands) add(operand);
  key += " ->";
  for (const ValueId result : op.results) add(result);
  for (const auto& [name, value] : op.attributes.entries()) {
    if (const auto* text = std::get_if<std::string>(&value)) key += fmt::format(" {}={}", name, *text);
    if (const auto* dims = std::get_if<std::vector<DimId>>(&value)) {
      key += fmt::format(" {}=", name);
      for (const DimId dim : *dims) key += fmt::format("{},", place_of(graph, op, dim));
    }
  }
  return key;
}

std::optional<double> CostTable::find(const std::string& key) const {
  const auto found = seconds_.find(key);
  return found == seconds_.end() ? std::nullopt : std::optional(found->second);
}

CostTable CostTable::from_json(const std::string& source, const std::string& text, const std::string& device) {
  const nlohmann::json json = parse_json(source, text);
  JsonFields fields(source, "", json);
  CostTable table(device);
  if (fields.integer("version", 0, INT32_MAX) != kVersion)
    fields.refuse("version", fmt::format("expected {}", kVersion));
  if (const std::string measured = fields.text("device"); measured != device)
    fields.refuse("device", fmt::format("\"{}\", expected {}", measured, device));
  table.origin_ = fields.text("origin", "");
  JsonFields seconds = fields.object("seconds");
  for (const auto& entry : json["seconds"].items()) table.set(entry.key(), seconds.real(entry.key(), 0, kMostSeconds));
  return table;
}

CostTable CostTable::load(const std::string& path, const std::string& device) {
  return from_json(path, read_file(path), device);
}

void CostTable::save(const std::string& path) const {
  const nlohmann::ordered_json json = {
      {"version", kVersion}, {"device", device_}, {"origin", origin_}, {"seconds", seconds_}};
  write_file(path, json.dump(1) + "\n");
}

namespace {

using Json = nlohmann::ordered_json;

Json names_of(const Graph& graph, const std::vector<DimId>& dims) {
  Json names = Json::array();
  for (const DimId dim : dims) names.push_back(graph.dims[dim].name);
  return names;
}

Json types_of(const Graph& graph, const std::vector<ValueId>& values) {
  Json types = Json::array();
  for (const ValueId value : values) {
    const Type& type = graph.type(value);
    Json sizes = Json::array();
    for (const DimId dim : type.dims) sizes.push_back(graph.dims[dim].size);
    types.push_back({{"element", to_string(type.element)}, {"dims", names_of(graph, type.dims)}, {"sizes", sizes}});
  }
  return types;
}

struct ToJson {
  const Graph& graph;
  Json operator()(const std::vector<DimId>& dims) const { return names_of(graph, dims); }
  Json operator()(const auto& plain) const { return plain; }
};

Json attributes_of(const Graph& graph, const Op& op) {
  Json attributes = Json::object();
  for (const auto& [name, value] : op.attributes.entries()) attributes[name] = std::visit(ToJson{graph}, value);
  return attributes;
}

}  // namespace

void UnmeasuredOps::add(const std::string& key, const Graph& graph, const Op& op) {
  if (by_key_.contains(key)) return;
  const Work work = work_of(graph, op);
  Json json = {{"key", key},
               {"op", info(op.kind).name},
               {"operands", types_of(graph, op.operands)},
               {"results", types_of(graph, op.results)},
               {"attributes", attributes_of(graph, op)},
               {"bytes", work.bytes}};
  if (work.batch > 0) json["product"] = {{"batch", work.batch}, {"m", work.m}, {"n", work.n}, {"k", work.k}};
  by_key_.emplace(key, json.dump());
}

std::string UnmeasuredOps::json(const std::string& device) const {
  Json ops = Json::array();
  for (const auto& [key, text] : by_key_) ops.push_back(Json::parse(text));
  return Json({{"version", 1}, {"device", device}, {"ops", ops}}).dump(1) + "\n";
}

}  // namespace shunt::graph
