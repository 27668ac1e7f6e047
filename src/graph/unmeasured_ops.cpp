#include "graph/unmeasured_ops.hpp"

#include <nlohmann/json.hpp>

namespace shunt::graph {
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
