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
/// 0 for a plan, whose tables the engine owns.
std::int64_t size_of(Element element);

/// The meaning of a dimension. Two dimensions of equal size and different name are never confused.
enum class DimRole : std::uint8_t {
  batch,
  sequence,
  key,  ///< the sequence again, when attention reads all of it
  heads,
  feature,
  vocabulary,
  expert,
  local_expert,  ///< experts of one rank; values with it are not replicated over ranks
  choice,        ///< a token's top-k
  rows,          ///< rows that a rank's experts receive; ragged, with the mean over ranks as its size
};

std::string_view to_string(DimRole role);
std::optional<DimRole> find_role(std::string_view name);

struct Dim {
  std::string name;
  std::int64_t size = 1;
  DimRole role = DimRole::feature;
  DimId groups;  ///< for rows: the local experts that group them
  DimId whole;   ///< for a part: the dimension it is a part of
  std::int32_t part = 0;
  std::int32_t parts = 1;
};

/// A name for several adjacent dimensions, as in T = B*S. Types contain the factors.
struct Product {
  std::string name;
  std::vector<DimId> factors;
};

/// The dimensions of a graph. The dimensions of a value are a set; its layout follows the order of declaration, with
/// parts in the position of their whole.
class DimTable {
 public:
  static constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
  static constexpr std::int32_t kMaxParts = 1024;

  /// Throws Error(invalid_argument) for a name that is taken or a size out of range.
  DimId add(Dim dim);
  void add_product(Product product);
  /// "B.1/4" is part 1 of 4 of B; sizes of parts differ by at most one. Equal arguments give the same dimension.
  DimId part(DimId whole, std::int32_t part, std::int32_t parts);

  /// By name, parts included ("B.1/4"); none if no such dimension was declared.
  std::optional<DimId> find(std::string_view name);
  [[nodiscard]] const Product* find_product(std::string_view name) const;

  [[nodiscard]] const Dim& operator[](DimId dim) const { return dims_[dim.index()]; }
  [[nodiscard]] std::span<const Dim> dims() const { return dims_; }
  [[nodiscard]] std::span<const Product> products() const { return products_; }

  /// The declared dimension that this is a part of, directly or indirectly; itself if it is not a part.
  [[nodiscard]] DimId root(DimId dim) const;
  /// Sorts a set in layout order and removes duplicates.
  [[nodiscard]] std::vector<DimId> ordered(std::vector<DimId> dims) const;
  [[nodiscard]] std::int64_t count(std::span<const DimId> dims) const;

 private:
  std::vector<Dim> dims_;
  std::vector<Product> products_;
};

struct Type {
  Element element = Element::f32;
  std::vector<DimId> dims;  ///< in the order of DimTable::ordered

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
