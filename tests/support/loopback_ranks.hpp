// Ranks over the loopback interface: a link and a peer that may send any packet; two simulated machines of threads.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/far/link.hpp"
#include "transport/far/make_carrier.hpp"
#include "transport/local/local_transport.hpp"

namespace shunt::test {

/// Why this build does not have the network; empty where it does.
std::string why_not(far::Network network);

/// Ranks of two simulated machines, the first half on one of them, the rest on the other.
std::vector<std::shared_ptr<Transport>> join_hosts(far::Network network, std::int32_t num_ranks,
                                                   std::chrono::milliseconds liveness);

std::unique_ptr<far::Carrier> carrier_on_loopback(far::Network network, const std::string& devices = "lo");

/// What rank 0 knows of RawPeer.
far::Contact contact_of_peer(std::span<const std::byte> address);

/// Rank 0's link to rank 1.
class LinkEnd {
 public:
  LinkEnd(far::Network network, std::span<const std::byte> address_of_peer, std::chrono::milliseconds liveness);

  [[nodiscard]] far::Link& link() { return *link_; }
  [[nodiscard]] std::optional<Fault> fault() const { return rank_.fault(); }
  [[nodiscard]] std::span<const std::byte> address() const { return address_; }
  void connect_all() { link_->connect_all(std::chrono::seconds(60)); }

 private:
  LocalTransport rank_{RankId(0), LocalTransport::anonymous_segments(2)};
  std::vector<std::byte> address_;
  std::optional<far::Link> link_;
};

/// Rank 1 without a link: it knows the session, and may send any packet. One thread at a time.
class RawPeer final : private far::Receiver {
 public:
  using Kind = far::Kind;

  explicit RawPeer(far::Network network) : carrier_(carrier_on_loopback(network)) {}

  [[nodiscard]] std::vector<std::byte> address() const { return carrier_->address(); }
  void connect(std::span<const std::byte> address);
  /// Closes its connections, as if killed.
  void vanish() { carrier_.reset(); }

  /// Returns once the packet is sent, or the other side has gone.
  void send(Kind kind, std::span<const std::byte> bytes = {});
  void progress() { carrier_->progress(); }
  [[nodiscard]] int num_received(Kind kind) const { return static_cast<int>(std::ranges::count(received_, kind)); }
  [[nodiscard]] const std::vector<Kind>& received() const { return received_; }

 private:
  bool wants(const far::Header& header, std::size_t bytes) override;
  void receive(const far::Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) override;
  void on_sent(const far::Packet&) override { ++num_sent_; }
  void on_lost(RankId, const std::string&) override { is_lost_ = true; }

  bool is_lost_ = false;
  std::int64_t num_sent_ = 0;
  std::vector<Kind> received_;
  std::unique_ptr<far::Carrier> carrier_;
};

}  // namespace shunt::test
