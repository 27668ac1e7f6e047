// The gradient of combine: weighted rows to the experts, and a dot product per routing weight.
#pragma once

#include <optional>

#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// Among near ranks the one that owns the token reads the expert's output in place, so that each weight's gradient is
/// ready where it is wanted. For a far source the forwarder does so and sends the gradients back.
class CombineBackward final : public Shuffle {
 public:
  struct Inputs {
    ConstTensor grad_out;
    std::shared_ptr<const void> expert_out_owner;  ///< keeps this rank's announced expert outputs alive
    DType expert_dtype;
    Block output;         ///< this rank's gradient rows; peers write into it
    bool has_weights;     ///< false in `token_unique`
    float* grad_weights;  ///< [tokens, topk], zero at first
  };

  CombineBackward(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  void begin(std::span<const Announcement> peers) override;
  Work work() override;

 private:
  /// The traffic with one far rank. Each way it carries the sender's own gradient rows, then the gradients of the
  /// receiver's weights, which wait for nothing but rows that have come the other way.
  struct Peer {
    SliceChannel* channel;
    std::optional<FlowCursor<OutFlow>> out{};
    std::optional<FlowCursor<InFlow>> in{};
    std::vector<float> weight_gradients{};  // by target of `in`
    bool has_answered = false;              // weight_gradients are on their way
    bool is_answered = false;               // those of `out` have come
  };

  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(in_.grad_out.cols); }
  Peer& peer(SliceChannel* channel);
  void send_near(std::int64_t token);
  /// Writes the target's gradient row; returns the gradient of its weight.
  float write_target(const std::byte* gradient, const Target& target);
  bool send(Peer& peer);
  bool receive(Peer& peer);
  /// Calls visit(gradient) for the gradient of each weight of the flow's tokens on the forwarder's node, in order.
  template <class Visit>
  void for_answered(const OutFlow& flow, const Visit& visit) const;

  Inputs in_;
  std::size_t row_bytes_ = 0;             // of expert rows
  std::vector<std::byte*> gradients_of_;  // by rank; nullptr for far ones
  std::vector<const std::byte*> expert_out_of_;
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace shunt
