#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "graph/text.hpp"

namespace shunt::graph {
namespace {

using Out = std::back_insert_iterator<std::string>;

/// The longest product whose factors begin `rest`; null if there is none.
const Product* product_at(const DimTable& dims, std::span<const DimId> rest) {
  const Product* longest = nullptr;
  for (const Product& product : dims.products())
    if (product.factors.size() <= rest.size() &&
        std::equal(product.factors.begin(), product.factors.end(), rest.begin()) &&
        (!longest || product.factors.size() > longest->factors.size()))
      longest = &product;
  return longest;
}

std::string list(const DimTable& dims, std::span<const DimId> all) {
  std::string text;
  while (!all.empty()) {
    const Product* product = product_at(dims, all);
    text += (text.empty() ? "" : ",") + (product ? product->name : dims[all[0]].name);
    all = all.subspan(product ? product->factors.size() : 1);
  }
  return "[" + text + "]";
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string real(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string attribute(const DimTable& dims, const Attribute& value) {
  switch (value.index()) {
    case 0: return fmt::format("{}", std::get<0>(value));
    case 1: return real(std::get<1>(value));
    case 2: return quoted(std::get<2>(value));
    default: return list(dims, std::get<3>(value));
  }
}

void print_dims(Out out, const DimTable& dims) {
  for (const Dim& dim : dims.dims())
    if (!dim.whole.valid())
      fmt::format_to(out, "dim {} = {} {}{}\n", dim.name, dim.size, to_string(dim.role),
                     dim.groups.valid() ? " of " + dims[dim.groups].name : "");
  for (const Product& product : dims.products()) {
    std::string factors;
    for (const DimId factor : product.factors) factors += (factors.empty() ? "" : "*") + dims[factor].name;
    fmt::format_to(out, "dim {} = {}\n", product.name, factors);
  }
}

void print_op(Out out, const Graph& graph, const Op& op) {
  std::string names, types;
  for (const ValueId result : op.results) {
    names += fmt::format("{}%{}", names.empty() ? "" : ", ", graph.value(result).name);
    types += (types.empty() ? " : " : ", ") + print(graph.dims, graph.type(result));
  }
  fmt::format_to(out, "{}{}{}(", names, names.empty() ? "" : " = ", info(op.kind).name);
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    fmt::format_to(out, "{}%{}", i ? ", " : "", graph.value(op.operands[i]).name);
  fmt::format_to(out, ")");
  std::string attributes;
  for (const auto& [name, value] : op.attributes.entries())
    attributes += fmt::format("{}{}={}", attributes.empty() ? "" : ", ", name, attribute(graph.dims, value));
  if (!attributes.empty()) fmt::format_to(out, " {{{}}}", attributes);
  fmt::format_to(out, "{} @", types);
  if (op.origin.layer >= 0) fmt::format_to(out, "{}.", op.origin.layer);
  fmt::format_to(out, "{}", to_string(op.origin.phase));
  if (op.origin.micro_batch > 0) fmt::format_to(out, ".m{}", op.origin.micro_batch);
  fmt::format_to(out, "\n");
}

}  // namespace

std::string print(const DimTable& dims, const Type& type) {
  return fmt::format("{}{}", to_string(type.element), list(dims, type.dims));
}

std::string print(const Graph& graph) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "graph {} ranks {}\n", graph.name, graph.ranks);
  print_dims(out, graph.dims);
  for (const Op& op : graph.ops()) print_op(out, graph, op);
  std::string outputs;
  for (const ValueId output : graph.outputs)
    outputs += fmt::format("{}%{}", outputs.empty() ? "" : ", ", graph.value(output).name);
  fmt::format_to(out, "return {}\n", outputs);
  return text;
}

}  // namespace shunt::graph
