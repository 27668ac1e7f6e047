#include "support/link_pair.hpp"

namespace shunt::test {
namespace {

constexpr std::uint64_t kToLink = 77;
constexpr std::uint64_t kToPeer = 78;

const std::string kLoopback = "127.0.0.1";

}  // namespace

std::unique_ptr<far::Carrier> carrier_on_loopback(far::Network network) {
  Environment::Network options;
  options.devices = "lo";
  return far::make_carrier(network, options);
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
  auto packet = std::make_unique<far::Packet>();
  packet->to = RankId(0);
  packet->header.session = kToLink;
  packet->header.from = 1;
  packet->header.kind = kind;
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  if (kind == Kind::slice) {
    const auto owner = std::make_shared<std::vector<std::byte>>(std::move(copy));
    packet->slice = {*owner, owner};
  } else {
    packet->small = std::move(copy);
  }
  const std::int64_t num_before = num_sent_;
  carrier_->send(std::move(packet));
  while (num_sent_ == num_before && !is_lost_) progress();
}

bool RawPeer::wants(const far::Header& header, std::size_t) { return header.session == kToPeer; }

void RawPeer::receive(const far::Header& header, std::span<const std::byte>, std::shared_ptr<const void>) {
  received_.push_back(header.kind);
}

}  // namespace shunt::test
