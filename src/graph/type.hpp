// Named dimensions, element types, and the types of values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shunt/dtype.hpp"
#include "shunt/ids.hpp"

namespace shunt::graph {

using DimId = Id<struct DimTag>;

enum class Element : std::uint8_t { f32, bf16, f16, fp8_e4m3, i32, plan };

std::string_view to_string(Element element);
std::optional<Element> find_element(std::string_view name);
Element element_of(DType dtype);
/// 0 for a plan: its tables are the engine's.
std::int64_t size_of(Element element);

/// What a dimension stands for. Two dimensions of equal size and different name are never confused.
enum class DimRole : std::uint8_t {
  batch,
  sequence,
  key,  ///< the sequence again, where attention looks at all of it
  heads,
  feature,
  vocabulary,
  expert,
  local_expert,  ///< experts of one rank; what has it is not replicated over ranks
  choice,        ///< a token's top-k
  rows,          ///< what a rank's experts receive: ragged, its size is the mean over ranks
};

std::string_view to_string(DimRole role);
std::optional<DimRole> find_role(std::string_view name);

struct Dim {
  std::string name;
  std::int64_t size = 1;
  DimRole role = DimRole::feature;
  DimId groups;  ///< of rows: the local experts by which they are grouped
  DimId whole;   ///< of a part: what it is a part of
  std::int32_t part = 0;
  std::int32_t parts = 1;
};

/// A name for several dimensions side by side, as T = B*S. Types hold the factors.
struct Product {
  std::string name;
  std::vector<DimId> factors;
};

/// The dimensions of a graph. Those of a value are a set: its layout follows the order of declaration, parts standing
/// where their whole does.
class DimTable {
 public:
  static constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
  static constexpr std::int32_t kMaxParts = 1024;

  /// Throws Error(invalid_argument) for a name that is taken or a size out of range.
  DimId add(Dim dim);
  void add_product(Product product);
  /// "B.1/4": part 1 of 4 of B; sizes of parts differ by at most one. The same part is one dimension.
  DimId part(DimId whole, std::int32_t part, std::int32_t parts);

  /// By name, parts included ("B.1/4"); nothing where no such dimension was declared.
  std::optional<DimId> find(std::string_view name);
  [[nodiscard]] const Product* find_product(std::string_view name) const;

  [[nodiscard]] const Dim& operator[](DimId dim) const { return dims_[dim.index()]; }
  [[nodiscard]] std::span<const Dim> dims() const { return dims_; }
  [[nodiscard]] std::span<const Product> products() const { return products_; }

  /// The declared dimension that this is a part of, of whatever depth; itself if it is no part.
  [[nodiscard]] DimId root(DimId dim) const;
  /// Puts a set into the order of layouts and removes what stands there twice.
  [[nodiscard]] std::vector<DimId> ordered(std::vector<DimId> dims) const;
  [[nodiscard]] std::int64_t count(std::span<const DimId> dims) const;

 private:
  std::vector<Dim> dims_;
  std::vector<Product> products_;
};

struct Type {
  Element element = Element::f32;
  std::vector<DimId> dims;  ///< as DimTable::ordered gives them

  bool operator==(const Type&) const = default;
  [[nodiscard]] bool has(DimId dim) const;
};

std::int64_t bytes_of(const DimTable& dims, const Type& type);

// Sets of dimensions, in the order of the first argument.
[[nodiscard]] bool contains(std::span<const DimId> dims, DimId dim);
[[nodiscard]] std::vector<DimId> without(std::span<const DimId> dims, std::span<const DimId> removed);
[[nodiscard]] std::vector<DimId> shared(std::span<const DimId> a, std::span<const DimId> b);
[[nodiscard]] std::vector<DimId> united(std::span<const DimId> a, std::span<const DimId> b);

}  // namespace shunt::graph
