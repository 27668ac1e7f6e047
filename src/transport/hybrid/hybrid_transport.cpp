#include "transport/hybrid/hybrid_transport.hpp"

namespace shunt {
namespace {

std::vector<RankId> ranks_near(RankId rank, const Wiring& wiring) {
  std::vector<RankId> near;
  for (std::size_t each = 0; each < wiring.hosts.size(); ++each)
    if (wiring.are_near(RankId(each), rank)) near.emplace_back(each);
  return near;
}

}  // namespace

HybridTransport::HybridTransport(RankId rank, const Wiring& wiring, Segments segments,
                                 std::unique_ptr<far::Carrier> carrier, std::vector<net::Contact> far_ranks,
                                 std::chrono::milliseconds liveness)
    : LocalTransport(rank, std::move(segments), ranks_near(rank, wiring)),
      wiring_(wiring),
      far_(std::move(carrier), std::move(far_ranks), liveness, *this) {
  // The first reporter of a machine sends the fault to all far ranks; later reports are ignored there.
  set_fault_listener([this](const Fault& fault) { far_.flood(fault); });
}

HybridTransport::~HybridTransport() {
  HybridTransport::leave();
  stop_watching();
  // The link's thread may still report faults, but far ranks have been sent `left`.
  set_fault_listener({});
}

Post HybridTransport::post(RankId peer, std::span<const std::byte> message) {
  return is_near(peer) ? LocalTransport::post(peer, message) : far_.post(peer, message);
}

bool HybridTransport::poll(Message& message) {
  // In turns, so that neither side can starve the other.
  for (int attempt = 0; attempt < 2; ++attempt) {
    poll_far_next_ = !poll_far_next_;
    if (poll_far_next_ ? LocalTransport::poll(message) : far_.poll(message)) return true;
  }
  return false;
}

void HybridTransport::suspect(RankId peer) { is_near(peer) ? LocalTransport::suspect(peer) : far_.suspect(peer); }

bool HybridTransport::has_left(RankId peer) const {
  return is_near(peer) ? LocalTransport::has_left(peer) : far_.has_left(peer);
}

bool HybridTransport::is_gone(RankId peer) const {
  return is_near(peer) ? LocalTransport::is_gone(peer) : far_.is_gone(peer);
}

void HybridTransport::leave() {
  LocalTransport::leave();
  far_.leave();
}

}  // namespace shunt
