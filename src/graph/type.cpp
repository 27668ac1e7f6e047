#include "graph/type.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/fail.hpp"

namespace shunt::graph {
namespace {

constexpr std::array<std::string_view, 6> kElements = {"f32", "bf16", "f16", "fp8_e4m3", "i32", "plan"};
constexpr std::array<std::string_view, 10> kRoles = {"batch",      "sequence", "key",          "heads",  "feature",
                                                     "vocabulary", "expert",   "local_expert", "choice", "rows"};

template <class Enum, std::size_t n>
std::optional<Enum> find_name(const std::array<std::string_view, n>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

std::optional<std::int32_t> whole_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string_view to_string(Element element) { return kElements[static_cast<std::size_t>(element)]; }
std::optional<Element> find_element(std::string_view name) { return find_name<Element>(kElements, name); }

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return Element::f32;
    case DType::bf16: return Element::bf16;
    case DType::f16: return Element::f16;
    case DType::fp8_e4m3: return Element::fp8_e4m3;
  }
  return Element::f32;
}

std::int64_t size_of(Element element) {
  switch (element) {
    case Element::f32:
    case Element::i32: return 4;
    case Element::bf16:
    case Element::f16: return 2;
    case Element::fp8_e4m3: return 1;
    case Element::plan: return 0;
  }
  return 0;
}

std::string_view to_string(DimRole role) { return kRoles[static_cast<std::size_t>(role)]; }
std::optional<DimRole> find_role(std::string_view name) { return find_name<DimRole>(kRoles, name); }

DimId DimTable::add(Dim dim) {
  if (find(dim.name) || find_product(dim.name))
    fail(ErrorCode::invalid_argument, "dimension {} is declared twice", dim.name);
  if (dim.size < 1 || dim.size > kMaxSize)
    fail(ErrorCode::invalid_argument, "dimension {} = {}: expected 1 to {}", dim.name, dim.size, kMaxSize);
  dims_.push_back(std::move(dim));
  return DimId(dims_.size() - 1);
}

void DimTable::add_product(Product product) {
  if (find(product.name) || find_product(product.name))
    fail(ErrorCode::invalid_argument, "dimension {} is declared twice", product.name);
  products_.push_back(std::move(product));
}

DimId DimTable::part(DimId whole, std::int32_t part, std::int32_t parts) {
  const std::string name = fmt::format("{}.{}/{}", (*this)[whole].name, part, parts);
  for (std::size_t i = 0; i < dims_.size(); ++i)
    if (dims_[i].whole == whole && dims_[i].name == name) return DimId(i);
  const Dim all = (*this)[whole];
  if (parts < 1 || parts > kMaxParts || part < 0 || part >= parts)
    fail(ErrorCode::invalid_argument, "dimension {}: no such part", name);
  const std::int64_t size = all.size * (part + 1) / parts - all.size * part / parts;
  if (size < 1) fail(ErrorCode::invalid_argument, "dimension {}: {} can't be cut into {}", name, all.size, parts);
  dims_.push_back({name, size, all.role, all.groups, whole, part, parts});
  return DimId(dims_.size() - 1);
}

std::optional<DimId> DimTable::find(std::string_view name) {
  for (std::size_t i = 0; i < dims_.size(); ++i)
    if (dims_[i].name == name) return DimId(i);
  const auto dot = name.rfind('.'), slash = name.rfind('/');
  if (dot == std::string_view::npos || slash == std::string_view::npos || slash < dot) return std::nullopt;
  const auto index = whole_number(name.substr(dot + 1, slash - dot - 1)), parts = whole_number(name.substr(slash + 1));
  if (!index || !parts) return std::nullopt;
  const auto whole = find(name.substr(0, dot));
  return whole ? std::optional(part(*whole, *index, *parts)) : std::nullopt;
}

const Product* DimTable::find_product(std::string_view name) const {
  const auto found = std::find_if(products_.begin(), products_.end(), [&](const Product& p) { return p.name == name; });
  return found == products_.end() ? nullptr : &*found;
}

DimId DimTable::root(DimId dim) const {
  while ((*this)[dim].whole.valid()) dim = (*this)[dim].whole;
  return dim;
}

std::vector<DimId> DimTable::ordered(std::vector<DimId> dims) const {
  const auto key = [this](DimId dim) { return std::pair(root(dim), dim); };
  std::sort(dims.begin(), dims.end(), [&](DimId a, DimId b) { return key(a) < key(b); });
  dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
  return dims;
}

std::int64_t DimTable::count(std::span<const DimId> dims) const {
  std::int64_t product = 1;
  for (const DimId dim : dims)
    if (__builtin_mul_overflow(product, (*this)[dim].size, &product))
      fail(ErrorCode::invalid_argument, "a tensor has more elements than 64 bits can count");
  return product;
}

bool Type::has(DimId dim) const { return contains(dims, dim); }

std::int64_t bytes_of(const DimTable& dims, const Type& type) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(dims.count(type.dims), size_of(type.element), &bytes))
    fail(ErrorCode::invalid_argument, "a tensor has more bytes than 64 bits can count");
  return bytes;
}

bool contains(std::span<const DimId> dims, DimId dim) { return std::find(dims.begin(), dims.end(), dim) != dims.end(); }

std::vector<DimId> without(std::span<const DimId> dims, std::span<const DimId> removed) {
  std::vector<DimId> left;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(left), [&](DimId d) { return !contains(removed, d); });
  return left;
}

std::vector<DimId> shared(std::span<const DimId> a, std::span<const DimId> b) {
  std::vector<DimId> both;
  std::copy_if(a.begin(), a.end(), std::back_inserter(both), [&](DimId d) { return contains(b, d); });
  return both;
}

std::vector<DimId> united(std::span<const DimId> a, std::span<const DimId> b) {
  std::vector<DimId> all(a.begin(), a.end());
  const std::vector<DimId> rest = without(b, a);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace shunt::graph
