#include "support/hosts_of_threads.hpp"

#include <thread>

#include "core/backend.hpp"
#include "core/wiring.hpp"
#include "shunt/topology.hpp"
#include "transport/hybrid/hybrid_transport.hpp"

namespace shunt::test {
namespace {

std::uint64_t session(RankId from, RankId to) {
  return 1000 + static_cast<std::uint64_t>(from.value) * 100 + static_cast<std::uint64_t>(to.value);
}

}  // namespace

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
    Environment::Network carrier_options;
    carrier_options.devices = has_two_rails ? "lo,lo" : "lo";
    carriers.push_back(far::make_carrier(network, carrier_options));
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

}  // namespace shunt::test
