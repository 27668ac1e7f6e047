// A world of several machines: shared memory inside a machine, a network between machines.
#pragma once

#include <memory>

#include "core/wiring.hpp"
#include "transport/far/link.hpp"
#include "transport/local/local_transport.hpp"

namespace shunt {

class HybridTransport final : public LocalTransport {
 public:
  /// `segments` are those of the ranks of this rank's machine, ascending; `far_ranks` are all others.
  HybridTransport(RankId rank, const Wiring& wiring, Segments segments, std::unique_ptr<far::Carrier> carrier,
                  std::vector<net::Contact> far_ranks, std::chrono::milliseconds liveness);
  /// As far::Link::connect_all. Call before the first operation.
  void connect_all(std::chrono::milliseconds limit) { far_.connect_all(limit); }
  ~HybridTransport() override;

  [[nodiscard]] std::int32_t size() const override { return static_cast<std::int32_t>(wiring_.hosts.size()); }
  [[nodiscard]] HostId host(RankId rank) const override { return wiring_.hosts[rank.index()]; }
  [[nodiscard]] NicId nic(RankId rank) const override { return wiring_.nics[rank.index()]; }
  [[nodiscard]] SliceLink* slices() override { return &far_.slices(); }

  Post post(RankId peer, std::span<const std::byte> message) override;
  bool poll(Message& message) override;

  void suspect(RankId peer) override;
  [[nodiscard]] bool has_left(RankId peer) const override;
  [[nodiscard]] bool is_gone(RankId peer) const override;
  void leave() override;

 private:
  [[nodiscard]] bool is_near(RankId peer) const { return wiring_.are_near(peer, rank()); }

  Wiring wiring_;
  far::Link far_;
  bool poll_far_next_ = false;
};

}  // namespace shunt
