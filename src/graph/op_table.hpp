// One table with all properties of an op: operands and attributes, type rule, the dimensions it can be split along,
// gradient, work, and lane. Attributes are constants by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/type.hpp"

namespace shunt::graph {

using Attribute = std::variant<std::int64_t, double, std::string, std::vector<DimId>>;

class Attributes {
 public:
  using Entry = std::pair<std::string, Attribute>;

  Attributes() = default;
  Attributes(std::initializer_list<Entry> entries);

  void set(std::string name, Attribute value);
  [[nodiscard]] const Attribute* find(std::string_view name) const;
  /// Sorted by name.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // The verifier has checked that the attributes that an op's table row requires exist and have the right kind.
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback = 0) const;
  [[nodiscard]] double real(std::string_view name, double fallback = 0) const;
  [[nodiscard]] std::string_view text(std::string_view name) const;
  [[nodiscard]] const std::vector<DimId>& dims(std::string_view name) const;

  bool operator==(const Attributes&) const = default;

 private:
  std::vector<Entry> entries_;
};

// clang-format off: a line for each family
enum class OpKind : std::uint8_t {
  input,
  param,
  state,
  constant,
  opaque,
  rename,
  part,
  join,
  embedding,
  embedding_dw,
  rope,
  matmul,
  grouped_matmul,
  softmax,
  softmax_dx,
  attention,
  attention_dx,
  norm,
  norm_dx,
  norm_dw,
  map,
  map_dx,
  swiglu,
  swiglu_dx,
  add,
  mul,
  scale,
  reduce,
  expand,
  topk,
  pick,
  pick_dx,
  limit,
  count,
  balance_loss,
  balance_loss_dx,
  plan,
  dispatch,
  combine,
  combine_dx,
  all_reduce,
  cross_entropy,
  cross_entropy_dx,
  sgd,
  adam,
  bias_update,
};
// clang-format on

/// The lane that an op occupies. `none`: declarations and views, which cost nothing.
enum class Lane : std::uint8_t { none, compute, comm };

/// The effect of splitting a dimension of an op into parts.
enum class Split : std::uint8_t {
  free,   ///< each part yields its part of the results
  sum,    ///< each part yields a partial sum of the results
  chain,  ///< each part depends on what the preceding parts used up
  never,
};

/// An op as rules see it.
struct OpView {
  const DimTable& dims;
  std::span<const Type> operands;
  const Attributes& attributes;
  std::span<const Type> results;  ///< empty during type inference
};

struct Work {
  double flops = 0;
  double bytes = 0;  ///< read and written by a compute op
  /// Sizes of the op's matrix product, if any, which a device divides into tiles.
  std::int64_t m = 0, n = 0, k = 0, batch = 0;
};

class Backward;
struct Op;

using TypeRule = std::vector<Type> (*)(const OpView&);
using SplitRule = Split (*)(const OpView&, DimId);
using WorkRule = Work (*)(const OpView&);
using GradientRule = void (*)(Backward&, const Op&);

struct OpInfo {
  OpKind kind;
  std::string_view name;
  Lane lane;
  std::int32_t least_operands, most_operands;
  std::int32_t num_results;
  /// Such as "over:dims eps:real?": names and kinds; ? marks optional attributes.
  std::string_view attributes;
  TypeRule types;  ///< null: the types of the results are declared
  SplitRule split;
  WorkRule work;
  GradientRule gradient;  ///< null: gradients don't flow through the op
  bool is_view = false;   ///< results use the memory of operands
  unsigned writes = 0;    ///< bit i: operand i is overwritten, and can't be read afterwards

  [[nodiscard]] bool overwrites(std::size_t operand) const { return operand < 32 && (writes >> operand & 1) != 0; }
};

const OpInfo& info(OpKind kind);
std::span<const OpInfo> op_table();
/// Null if no op has this name.
const OpInfo* find_op(std::string_view name);

/// Throws Error(invalid_argument) that names the attribute that is missing, unknown or of the wrong kind.
void check_attributes(const OpInfo& op, const Attributes& attributes);

}  // namespace shunt::graph
