#include "runtime/places.hpp"

#include <algorithm>
#include <map>

#include "core/fail.hpp"

namespace shunt::runtime {
namespace {

using graph::DimId;
using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::ValueId;

std::int64_t begin_in_root(const graph::DimTable& dims, DimId dim) {
  const graph::Dim& part = dims[dim];
  return part.whole.valid() ? begin_in_root(dims, part.whole) + dims[part.whole].size * part.part / part.parts : 0;
}

/// A value that lies inside another, or is it under other names.
struct Link {
  ValueId outer, inner;
  /// The dimensions that differ, as the outer and the inner value know them.
  std::vector<std::pair<DimId, DimId>> renamed;
};

std::vector<Link> links_of(const Graph& graph) {
  std::vector<Link> links;
  for (const Op& op : graph.ops()) {
    const graph::OpInfo& info = graph::info(op.kind);
    if (info.writes != 0) {
      std::size_t result = 0;
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (info.overwrites(i)) links.push_back({op.operands[i], op.results[result++], {}});
    } else if (op.kind == OpKind::rename) {
      Link link{op.operands[0], op.results[0], {}};
      const auto &from = op.attributes.dims("from"), &to = op.attributes.dims("to");
      for (std::size_t i = 0; i < from.size(); ++i) link.renamed.emplace_back(from[i], to[i]);
      links.push_back(std::move(link));
    } else if (op.kind == OpKind::part) {
      Link link{op.operands[0], op.results[0], {}};
      for (const DimId to : op.attributes.dims("to")) link.renamed.emplace_back(graph.dims[to].whole, to);
      links.push_back(std::move(link));
    } else if (op.kind == OpKind::join) {
      const DimId whole = op.attributes.dims("to")[0];
      for (const ValueId operand : op.operands) {
        Link link{op.results[0], operand, {}};
        for (const DimId dim : graph.type(operand).dims)
          if (graph.dims[dim].whole == whole) link.renamed.emplace_back(whole, dim);
        links.push_back(std::move(link));
      }
    }
  }
  return links;
}

/// Moves a range of the outer value to the inner one (inward) or back.
Place::Range moved(const graph::DimTable& dims, Place::Range range, const Link& link, bool inward) {
  for (const auto& [outer, inner] : link.renamed) {
    if (range.dim != (inward ? outer : inner)) continue;
    const std::int64_t shift = begin_in_root(dims, inner) - begin_in_root(dims, outer);
    // A renamed dimension is another root: both begin at 0.
    const bool is_part = dims[inner].whole == outer;
    range.dim = inward ? inner : outer;
    range.begin += is_part ? (inward ? shift : -shift) : 0;
    range.size = dims[range.dim].size;
    break;
  }
  return range;
}

bool overlap(const Place& a, const Place& b) {
  for (std::size_t i = 0; i < a.ranges.size(); ++i) {
    const auto &x = a.ranges[i], &y = b.ranges[i];
    if (x.begin + x.size <= y.begin || y.begin + y.size <= x.begin) return false;
  }
  return true;
}

bool is_same(const Place& a, const Place& b) {
  return std::ranges::equal(a.ranges, b.ranges, [](const Place::Range& x, const Place::Range& y) {
    return x.begin == y.begin && x.size == y.size && x.dim == y.dim;
  });
}

bool is_declaration(const Op& op) {
  return op.kind == OpKind::input || op.kind == OpKind::param || op.kind == OpKind::state ||
         op.kind == OpKind::constant;
}

/// True if the op writes memory that no earlier value of it has.
bool computes(const Op& op) { return graph::info(op.kind).writes == 0 && !graph::info(op.kind).is_view; }

}  // namespace

Places::Places(const Graph& graph) : places_(graph.values().size()) {
  std::map<ValueId, std::vector<std::pair<Link, bool>>> neighbours;  // and whether the link leads inward
  for (const Link& link : links_of(graph)) {
    neighbours[link.outer].emplace_back(link, true);
    neighbours[link.inner].emplace_back(link, false);
  }
  // The largest value of a buffer is placed first, so start with the largest of all.
  std::vector<ValueId> by_size;
  for (std::size_t i = 0; i < graph.values().size(); ++i) by_size.emplace_back(i);
  std::ranges::stable_sort(by_size, std::ranges::greater(),
                           [&](ValueId value) { return graph.dims.count(graph.type(value).dims); });
  for (const ValueId largest : by_size) {
    const graph::Type& type = graph.type(largest);
    if (has(largest) || type.element == graph::Element::plan) continue;
    const BufferId id(buffers_.size());
    Buffer& buffer = buffers_.emplace_back();
    buffer.dims = type.dims;
    buffer.element = type.element;
    Place place{id, {}};
    for (const DimId dim : type.dims) {
      place.ranges.push_back({dim, 0, graph.dims[dim].size, 0});
      if (graph.dims[dim].role != graph::DimRole::rows) continue;
      if (dim != type.dims.front())
        fail(ErrorCode::unsupported, "%{} has rows inside another dimension", graph.value(largest).name);
      buffer.rows = dim;
    }
    for (std::size_t i = type.dims.size(); i-- > 0;) {
      place.ranges[i].stride = buffer.row_count;
      if (type.dims[i] != buffer.rows) buffer.row_count *= graph.dims[type.dims[i]].size;
    }
    std::vector<ValueId> reached = {largest};
    places_[largest.index()] = std::move(place);
    while (!reached.empty()) {
      const ValueId from = reached.back();
      reached.pop_back();
      buffer.values.push_back(from);
      for (const auto& [link, inward] : neighbours[from]) {
        const ValueId to = inward ? link.inner : link.outer;
        Place next{id, {}};
        for (const Place::Range& range : places_[from.index()].ranges)
          next.ranges.push_back(moved(graph.dims, range, link, inward));
        Place& known = places_[to.index()];
        if (!known.buffer.valid()) {
          known = std::move(next);
          reached.push_back(to);
        } else if (!is_same(known, next)) {
          fail(ErrorCode::unsupported, "%{} would lie in two places", graph.value(to).name);
        }
      }
    }
    std::vector<ValueId> computed;
    for (const ValueId value : buffer.values) {
      const Op& producer = graph.op(graph.value(value).producer);
      buffer.is_declared |= is_declaration(producer);
      if (computes(producer)) computed.push_back(value);
    }
    for (std::size_t i = 0; i < computed.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (overlap(of(computed[i]), of(computed[j])))
          fail(ErrorCode::unsupported, "%{} and %{} would lie in the same memory", graph.value(computed[i]).name,
               graph.value(computed[j]).name);
  }
}

View Places::view(ValueId value, std::byte* buffer, std::int64_t num_rows) const {
  const Place& place = of(value);
  const Buffer& whole = this->buffer(place.buffer);
  View view{buffer, whole.element, {}};
  for (std::size_t i = 0; i < place.ranges.size(); ++i) {
    const Place::Range& range = place.ranges[i];
    view.axes.push_back({range.dim, whole.dims[i] == whole.rows ? num_rows : range.size, range.stride});
    view.data += range.begin * range.stride * graph::size_of(whole.element);
  }
  return view;
}

}  // namespace shunt::runtime
