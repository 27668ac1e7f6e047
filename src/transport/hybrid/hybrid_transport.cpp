#include "transport/hybrid/hybrid_transport.hpp"

#include "core/fail.hpp"

namespace shunt {

HybridTransport::HybridTransport(Wiring wiring, std::shared_ptr<LocalTransport> near,
                                 std::unique_ptr<far::Carrier> carrier, far::LinkOptions options)
    : rank_(options.rank), wiring_(std::move(wiring)), locals_(wiring_.hosts.size()), near_(std::move(near)) {
  for (std::size_t r = 0; r < locals_.size(); ++r) {
    if (!is_near(RankId(r))) continue;
    locals_[r] = RankId(members_.size());
    members_.emplace_back(r);
  }
  SHUNT_CHECK(static_cast<std::size_t>(near_->size()) == members_.size() && local(rank_) == near_->rank());
  far_.emplace(std::move(carrier), std::move(options),
               far::LinkCallbacks{.on_arrival = [this] { near_->wake(); },
                                  .on_fault = [this](ErrorCode code, RankId culprit,
                                                     const std::string& text) { near_->report(code, culprit, text); }});
  // The first reporter of a machine sends the fault to all far ranks; later reports are ignored there.
  near_->set_fault_listener([this](const Fault& fault) { far_->flood(fault); });
}

HybridTransport::~HybridTransport() {
  leave();
  near_->stop_watching();
  // The link's thread may still report faults, but far ranks have been sent `left`.
  near_->set_fault_listener({});
  far_.reset();
}

Post HybridTransport::post(RankId peer, std::span<const std::byte> message) {
  return is_near(peer) ? near_->post(local(peer), message) : far_->post(peer, message);
}

bool HybridTransport::poll(Message& message) {
  // In turns, so that neither side can starve the other.
  for (int attempt = 0; attempt < 2; ++attempt) {
    poll_far_next_ = !poll_far_next_;
    if (!poll_far_next_) {
      if (far_->poll(message)) return true;
    } else if (near_->poll(message)) {
      message.from = members_[message.from.index()];
      return true;
    }
  }
  return false;
}

void HybridTransport::suspect(RankId peer) {
  if (is_near(peer))
    near_->suspect(local(peer));
  else
    far_->suspect(peer);
}

bool HybridTransport::has_left(RankId peer) const {
  return is_near(peer) ? near_->has_left(local(peer)) : far_->has_left(peer);
}

bool HybridTransport::is_gone(RankId peer) const {
  return is_near(peer) ? near_->is_gone(local(peer)) : far_->is_gone(peer);
}

void HybridTransport::leave() {
  if (has_left_.exchange(true)) return;
  near_->leave();
  // Another rank of this machine may send the fault too, but it has to arrive before this rank's `left`.
  if (const auto fault = near_->fault()) far_->flood(*fault);
  far_->leave();
}

}  // namespace shunt
