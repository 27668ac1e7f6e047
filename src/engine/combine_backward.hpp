// The gradient of combine: weighted rows to the experts, and a dot product per routing weight.
#pragma once

#include <optional>

#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// The rank that owns a token reads the outputs of near experts in place, so the gradients of its weights end up where
/// they are needed. For a far source, the forwarder reads them and sends the gradients of weights back.
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
  /// The traffic with one far rank. Each direction carries the sender's gradient rows, then the gradients of the
  /// receiver's weights, which depend only on the rows of the other direction.
  struct Peer {
    SliceChannel* channel;
    std::optional<FlowCursor<OutFlow>> out{};
    std::optional<FlowCursor<InFlow>> in{};
    std::vector<float> weight_gradients{};  // by target of `in`
    bool has_answered = false;              // weight_gradients were sent
    bool is_answered = false;               // the weight gradients of `out` were received
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
  std::vector<std::byte*> expert_out_of_;
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace shunt
