// Combine, and the gradient of dispatch: expert outputs back to their tokens.
#pragma once

#include <array>

#include "engine/shuffle.hpp"
#include "kernels/reduce.hpp"
#include "shunt/engine.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class Combine final : public Shuffle {
 public:
  struct Inputs {
    std::shared_ptr<const void> rows_owner;  ///< keeps this rank's announced rows alive
    std::int64_t hidden;
    ReduceFormat format;
    Reduction reduction;
    bool weighted;  ///< false for the gradient of dispatch
    Tensor out;
  };

  Combine(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  void begin(std::span<const Announcement> peers) override;
  Work work() override;

 private:
  /// What a far node sends for one token: the sum of its rows in the wire dtype; for `flat`, the rows themselves.
  struct FarPart {
    NodeId node;
    FlowCursor<OutFlow>* flow;
    const std::byte* rows;
  };

  [[nodiscard]] const std::byte* row(const Target& target) const {
    return rows_of_[target.rank.index()] + target.slot.index() * row_bytes_;
  }
  [[nodiscard]] float weight(const Target& target) const { return in_.weighted ? target.weight : 1.0f; }
  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(in_.hidden); }
  [[nodiscard]] bool is_flat() const { return in_.reduction == Reduction::flat; }
  [[nodiscard]] std::size_t part_bytes(std::size_t num_targets) const;

  /// As forwarder: sums the rows of near ranks for the tokens of far sources.
  bool forward();
  void forward_token(std::span<const Target> targets, std::byte* segment) const;
  /// False while a far part has not arrived.
  bool find_far_parts(std::int64_t token);
  [[nodiscard]] FarPart* far_part(const Target& target);
  bool sum_token(std::int64_t token);
  /// The terms of targets [begin, end) of a token; far parts are terms like near rows.
  std::span<const Term> terms_of(std::span<const Target> targets, std::size_t begin, std::size_t end);
  void sum_in_f32(std::int64_t token);

  Inputs in_;
  std::size_t row_bytes_ = 0;
  std::vector<std::byte*> rows_of_;  // by rank; nullptr for far ones
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  FarFlows<InFlow, OutFlow> far_;
  std::vector<FarPart> far_parts_;  // of the current token
  std::array<Term, Routing::kMaxTopK> terms_;
  std::vector<float> node_sums_;  // [nodes of the token, hidden]
};

}  // namespace shunt
