// What a link tells before there is a transport that listens.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "transport/hybrid/far_link.hpp"

namespace shunt::far {

class EarlyListener {
 public:
  explicit EarlyListener(RankId self) : state_(std::make_shared<State>()) { state_->self = self; }

  /// For the link, which may outlive this object.
  [[nodiscard]] FarLink::Listener listener() const {
    return {.on_arrival =
                [state = state_] {
                  if (const auto* later = state->later.load()) later->on_arrival();
                },
            .on_fault =
                [state = state_](ErrorCode code, RankId culprit, const std::string& text) {
                  if (!state->remember({code, culprit, state->self, text}))
                    state->later.load()->on_fault(code, culprit, text);
                }};
  }

  /// The first that was told so far.
  [[nodiscard]] std::optional<Fault> fault() const {
    const std::lock_guard lock(state_->mutex);
    return state_->fault;
  }

  /// From now on, and what was told before. Once.
  void pass_on_to(FarLink::Listener later) {
    const std::lock_guard lock(state_->mutex);
    state_->later_one = std::move(later);
    if (const auto& known = state_->fault) state_->later_one.on_fault(known->code, known->culprit, known->text);
    state_->later = &state_->later_one;
    state_->later_one.on_arrival();
  }

 private:
  struct State {
    /// False where somebody else listens.
    bool remember(Fault told) {
      const std::lock_guard lock(mutex);
      if (later.load()) return false;
      if (!fault) fault = std::move(told);
      return true;
    }

    RankId self;
    std::mutex mutex;  // guards what follows
    std::optional<Fault> fault;
    FarLink::Listener later_one;
    std::atomic<const FarLink::Listener*> later{nullptr};  // set once, under the mutex; read by anybody
  };

  std::shared_ptr<State> state_;
};

}  // namespace shunt::far
