#include "transport/ucx/join.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "transport/hybrid/hybrid_transport.hpp"
#include "transport/shm/join.hpp"
#include "transport/ucx/link.hpp"
#include "transport/ucx/worker.hpp"

namespace shunt::ucx {
namespace {

/// Equal for ranks that can share memory: one running system, and one network, as sockets pass the memory on.
std::uint64_t host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  Hasher hasher;
  hasher.add_all<char>(std::span<const char>(boot.data(), boot.size()));
  hasher.add_all<char>(std::span<const char>(name.data(), std::strlen(name.data())));
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/ipc"}) {
    struct stat status {};
    if (stat(space, &status) == 0) hasher.add(status.st_ino);
  }
  return hasher.value();
}

/// What a rank brings to the meeting: its host, then the address of its worker.
struct Card {
  std::uint64_t host = 0;
  std::vector<std::byte> address;

  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(sizeof(host));
    std::memcpy(all.data(), &host, sizeof(host));
    all.insert(all.end(), address.begin(), address.end());
    return all;
  }
  static Card read(std::span<const std::byte> bytes, RankId rank) {
    Card card;
    if (bytes.size() <= sizeof(card.host))
      fail(ErrorCode::mismatch, "rank {} brought {} bytes only", rank, bytes.size());
    std::memcpy(&card.host, bytes.data(), sizeof(card.host));
    const auto address = bytes.subspan(sizeof(card.host));
    card.address.assign(address.begin(), address.end());
    return card;
  }
};

/// Numbered by their first rank.
std::vector<HostId> number_hosts(const std::vector<Card>& cards) {
  std::vector<std::uint64_t> known;
  std::vector<HostId> hosts;
  for (const Card& card : cards) {
    const auto found = std::find(known.begin(), known.end(), card.host);
    hosts.emplace_back(static_cast<std::size_t>(found - known.begin()));
    if (found == known.end()) known.push_back(card.host);
  }
  return hosts;
}

}  // namespace

std::shared_ptr<Transport> join(const JoinOptions& options) {
  const net::MeetingOptions& meeting_options = options.meeting;
  const RankId self = meeting_options.rank;
  auto worker = std::make_unique<Worker>(WorkerOptions{options.devices, options.port_range});
  const net::Meeting meeting = net::meet(meeting_options, Card{host_identity(), worker->address()}.bytes());

  std::vector<Card> cards;
  for (std::int32_t rank = 0; rank < meeting_options.size; ++rank)
    cards.push_back(Card::read(meeting.card(RankId(rank)), RankId(rank)));
  const std::vector<HostId> hosts = number_hosts(cards);

  shm::JoinOptions near;
  near.job = meeting.name();
  near.join_limit = meeting_options.limit;
  near.liveness_limit = options.liveness_limit;
  LinkOptions far{.rank = self, .size = meeting_options.size, .contacts = {}, .liveness = options.liveness_limit};
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const RankId rank(r);
    if (hosts[r] == hosts[self.index()]) {
      if (rank == self) near.rank = RankId(near.names.size());
      near.names.push_back(rank);
    } else {
      far.contacts.push_back({rank, cards[r].address, meeting.session(self, rank), meeting.session(rank, self)});
    }
  }
  near.size = static_cast<std::int32_t>(near.names.size());
  const auto local = shm::join(near);
  return std::make_shared<HybridTransport>(self, hosts, local, [&](FarLink::Listener listener) {
    auto link = std::make_unique<Link>(std::move(worker), far, std::move(listener));
    link->greet_all(meeting_options.limit, [&] { return local->fault(); });
    return link;
  });
}

}  // namespace shunt::ucx
