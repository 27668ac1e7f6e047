// What a world of several hosts asks of its network: messages, slices, faults and signs of life between far ranks.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "transport/slice_link.hpp"
#include "transport/transport.hpp"

namespace shunt {

/// One rank's end. Ranks are ranks of the whole world; only far ones may be given.
class FarLink {
 public:
  /// Called by any thread: the link's own, one that suspects a peer or gives a slice back, or the one that makes the
  /// link.
  struct Listener {
    std::function<void()> on_arrival;  ///< something can be polled, or there is room again
    std::function<void(ErrorCode code, RankId culprit, const std::string& text)> on_fault;
  };

  virtual ~FarLink() = default;

  /// As in Transport. Any thread may post and suspect; one thread at a time polls.
  virtual Post post(RankId peer, std::span<const std::byte> message) = 0;
  virtual bool poll(Message& message) = 0;
  virtual void suspect(RankId peer) = 0;
  [[nodiscard]] virtual bool has_left(RankId peer) const = 0;
  [[nodiscard]] virtual bool is_gone(RankId peer) const = 0;
  [[nodiscard]] virtual SliceLink& slices() = 0;

  /// Tells all far ranks of a fault. Any thread.
  virtual void flood(const Fault& fault) = 0;
  /// Tells all far ranks that this one needs nothing more. Any thread.
  virtual void leave() = 0;
};

}  // namespace shunt
