#include "support/loopback_ranks.hpp"

#include <thread>

#include "core/backend.hpp"
#include "core/wiring.hpp"
#include "shunt/topology.hpp"
#include "transport/hybrid/hybrid_transport.hpp"

namespace shunt::test {
namespace {

constexpr std::uint64_t kToLink = 77;
constexpr std::uint64_t kToPeer = 78;

const std::string kLoopback = "127.0.0.1";

std::uint64_t session(RankId from, RankId to) {
  return 1000 + static_cast<std::uint64_t>(from.value) * 100 + static_cast<std::uint64_t>(to.value);
}

}  // namespace

std::unique_ptr<far::Carrier> carrier_on_loopback(far::Network network, const std::string& devices) {
  Environment::Network options;
  options.devices = devices;
  return far::make_carrier(network, options);
}

std::string why_not(far::Network network) { return network == far::Network::ucx ? load_backend("ucx").why_not : ""; }

std::vector<std::shared_ptr<Transport>> join_hosts(far::Network network, std::int32_t num_ranks,
                                                   std::chrono::milliseconds liveness) {
  const Topology topology = Topology::virtual_nodes(num_ranks, std::min(num_ranks, 2));
  Wiring wiring;
  std::vector<std::unique_ptr<far::Carrier>> carriers;
  std::vector<std::vector<std::byte>> addresses;
  for (const NodeId node : topology.nodes()) {
    wiring.add(HostId(node.value), NicId(node.value));
    const bool has_two_rails = network == far::Network::tcp && node == NodeId(1);
    carriers.push_back(carrier_on_loopback(network, has_two_rails ? "lo,lo" : "lo"));
    addresses.push_back(carriers.back()->address());
  }
  std::vector<std::shared_ptr<HybridTransport>> ends;
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const auto members = topology.ranks(NodeId(n));
    const auto segments = LocalTransport::anonymous_segments(static_cast<std::int32_t>(members.size()));
    for (const RankId self : members) {
      std::vector<net::Contact> far_ranks;
      for (std::size_t rank = 0; rank < wiring.hosts.size(); ++rank)
        if (!wiring.are_near(RankId(rank), self))
          far_ranks.push_back(
              {RankId(rank), addresses[rank], "", session(self, RankId(rank)), session(RankId(rank), self)});
      ends.push_back(std::make_shared<HybridTransport>(self, wiring, segments, std::move(carriers[self.index()]),
                                                       std::move(far_ranks), liveness));
    }
  }
  std::vector<std::jthread> connecting;  // all at once, as each waits for the others
  for (const auto& end : ends) connecting.emplace_back([&end] { end->connect_all(std::chrono::seconds(30)); });
  connecting.clear();
  return {ends.begin(), ends.end()};
}

far::Contact contact_of_peer(std::span<const std::byte> address) {
  return {RankId(1), {address.begin(), address.end()}, kLoopback, kToPeer, kToLink};
}

LinkEnd::LinkEnd(far::Network network, std::span<const std::byte> address_of_peer, std::chrono::milliseconds liveness) {
  auto carrier = carrier_on_loopback(network);
  address_ = carrier->address();
  link_.emplace(std::move(carrier), std::vector{contact_of_peer(address_of_peer)}, liveness, rank_);
}

void RawPeer::connect(std::span<const std::byte> address) {
  const far::Contact contact{RankId(0), {address.begin(), address.end()}, kLoopback, kToLink, kToPeer};
  carrier_->connect(RankId(1), {contact}, *this, std::make_shared<Wake>());
}

void RawPeer::send(Kind kind, std::span<const std::byte> bytes) {
  // The kind decides which of the two is sent.
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  const far::Header header{.session = kToLink, .from = 1, .kind = kind};
  auto packet = std::make_unique<far::Packet>(
      far::Packet{.to = RankId(0), .header = header, .small = *copy, .slice = {*copy, copy}});
  const std::int64_t num_before = num_sent_;
  carrier_->send(std::move(packet));
  while (num_sent_ == num_before && !is_lost_) progress();
}

bool RawPeer::wants(const far::Header& header, std::size_t) { return header.session == kToPeer; }

void RawPeer::receive(const far::Header& header, std::span<const std::byte>, std::shared_ptr<const void>) {
  received_.push_back(header.kind);
}

}  // namespace shunt::test
