#include "support/hosts_of_threads.hpp"

#include <thread>

#include "core/wiring.hpp"
#include "shunt/topology.hpp"
#include "transport/far/link.hpp"
#include "transport/hybrid/hybrid_transport.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::test {
namespace {

std::uint64_t session(RankId from, RankId to) {
  return 1000 + static_cast<std::uint64_t>(from.value) * 100 + static_cast<std::uint64_t>(to.value);
}

/// All at once, as each waits for the others.
void greet(const std::vector<far::Link*>& links) {
  std::vector<std::jthread> greeters;
  for (far::Link* link : links)
    greeters.emplace_back([link] { link->greet_all(std::chrono::seconds(30), [] { return std::nullopt; }); });
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
    carriers.push_back(
        far::make_carrier(network, {.network = {}, .devices = has_two_rails ? "lo,lo" : "lo", .port_range = {}}));
    addresses.push_back(carriers.back()->address());
  }
  std::vector<std::shared_ptr<Transport>> ends;
  std::vector<far::Link*> links;
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const auto members = topology.ranks(NodeId(n));
    const auto segments = LocalTransport::anonymous_segments(static_cast<std::int32_t>(members.size()));
    for (std::size_t local = 0; local < members.size(); ++local) {
      const RankId self = members[local];
      far::LinkOptions options{.rank = self, .size = num_ranks, .contacts = {}, .liveness = liveness};
      for (std::size_t rank = 0; rank < wiring.hosts.size(); ++rank)
        if (!wiring.are_near(RankId(rank), self))
          options.contacts.push_back(
              {RankId(rank), addresses[rank], "", session(self, RankId(rank)), session(RankId(rank), self)});
      auto near = std::make_shared<LocalTransport>(RankId(local), segments,
                                                   std::vector<RankId>(members.begin(), members.end()));
      ends.push_back(std::make_shared<HybridTransport>(self, wiring, std::move(near), [&](FarLink::Listener listener) {
        auto link = std::make_unique<far::Link>(std::move(carriers[self.index()]), options, std::move(listener));
        links.push_back(link.get());
        return link;
      }));
    }
  }
  greet(links);
  return ends;
}

}  // namespace shunt::test
