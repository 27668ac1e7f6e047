#include "transport/far/join.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "core/host_name.hpp"
#include "core/wiring.hpp"
#include "transport/far/early_listener.hpp"
#include "transport/far/link.hpp"
#include "transport/hybrid/hybrid_transport.hpp"
#include "transport/missing_ranks.hpp"
#include "transport/net/places.hpp"
#include "transport/net/reunion.hpp"
#include "transport/shm/join.hpp"

namespace shunt::far {
namespace {

/// Equal for ranks that can share memory: one running system, and one network, as sockets pass the memory on.
std::uint64_t host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const std::string name = host_name();
  Hasher hasher;
  hasher.add_all<char>(std::span<const char>(boot.data(), boot.size()));
  hasher.add_all<char>(std::span<const char>(name.data(), name.size()));
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/ipc"}) {
    struct stat status {};
    if (stat(space, &status) == 0) hasher.add(status.st_ino);
  }
  return hasher.value();
}

/// Equal for ranks of one host that use the same devices.
std::uint64_t nic_identity(const std::string& devices) {
  return Hasher().add(host_identity()).add_all<char>(std::span<const char>(devices.data(), devices.size())).value();
}

/// What a rank brings to the meeting: its host, its NIC, its seat, where others may find it that it does not share a
/// host with, and the address of its carrier.
struct Card {
  std::uint64_t host = 0;
  std::uint64_t nic = 0;
  net::MeetingPlace seat;
  net::MeetingPlace home;
  Network network{};
  std::vector<std::byte> carrier;

  [[nodiscard]] net::Bytes bytes() const {
    net::Bytes all;
    net::append(all, host);
    net::append(all, nic);
    net::append(all, seat);
    net::append(all, home);
    net::append(all, static_cast<std::uint8_t>(network));
    net::append(all, carrier);
    return all;
  }
  static Card read(std::span<const std::byte> bytes, RankId rank) {
    net::ByteReader reader(bytes);
    Card card;
    card.host = reader.take<std::uint64_t>();
    card.nic = reader.take<std::uint64_t>();
    card.seat = net::take_place(reader);
    card.home = net::take_place(reader);
    card.network = static_cast<Network>(reader.take<std::uint8_t>());
    if (!reader.ok() || reader.at_end()) fail(ErrorCode::mismatch, "rank {} brought {} bytes only", rank, bytes.size());
    const auto carrier = reader.take_rest();
    card.carrier.assign(carrier.begin(), carrier.end());
    return card;
  }
};

/// Numbers what is the same, by its first rank.
template <class Id>
class Numbers {
 public:
  Id of(std::uint64_t identity) {
    const auto found = std::find(known_.begin(), known_.end(), identity);
    const Id number(static_cast<std::size_t>(found - known_.begin()));
    if (found == known_.end()) known_.push_back(identity);
    return number;
  }

 private:
  std::vector<std::uint64_t> known_;
};

Wiring wiring_of(const std::vector<Card>& cards) {
  Wiring wiring;
  Numbers<HostId> hosts;
  Numbers<NicId> nics;
  for (const Card& card : cards) wiring.add(hosts.of(card.host), nics.of(card.nic));
  return wiring;
}

/// For ranks that came to the meeting over the loopback interface.
net::MeetingPlace own_home() {
  const std::vector<std::string> addresses = net::own_addresses("");
  return {addresses.empty() ? "" : addresses.front(), 0, ""};
}

/// What this rank brings along, besides its options, whenever a world is made.
struct Luggage {
  explicit Luggage(const JoinOptions& options)
      : network(choose_network(options.carrier)),
        carrier(make_carrier(network, options.carrier)),
        seat(net::take_seat(options.meeting.place.interface, options.carrier.port_range)),
        card(Card{host_identity(), nic_identity(options.carrier.devices), seat.place, own_home(), network,
                  carrier->address()}
                 .bytes()) {}

  Network network;
  std::unique_ptr<Carrier> carrier;
  net::Seat seat;
  net::Bytes card;
};

class FarReunion final : public Reunion {
 public:
  FarReunion(JoinOptions options, net::Seating seating) : options_(std::move(options)), seating_(std::move(seating)) {}

  Outcome hold(Transport& old, std::chrono::milliseconds limit) override;

 private:
  JoinOptions options_;
  net::Seating seating_;
};

/// `self` as it came to the meeting.
Joined join_those_who_met(const JoinOptions& options, RankId self, const net::Meeting& meeting, Luggage luggage) {
  std::vector<Card> cards;
  std::vector<std::string> came_from;
  const RankId own = meeting.rank_of(self);
  net::Seating seating{.rank = own, .own = std::move(luggage.seat), .places = {}, .token = meeting.name()};
  for (std::int32_t r = 0; r < meeting.size(); ++r) {
    const RankId rank(r);
    cards.push_back(Card::read(meeting.card(rank), rank));
    const std::string& home = cards.back().home.address;
    came_from.push_back(net::is_loopback(meeting.address(rank)) && !home.empty() ? home : meeting.address(rank));
    seating.places.push_back(cards.back().seat);
    if (seating.places.back().address.empty()) seating.places.back().address = came_from.back();
    if (cards.back().network != luggage.network)
      fail(ErrorCode::mismatch, "rank {} would use {}, but rank {} {}; SHUNT_NETWORK can say which", own,
           name_of(luggage.network), rank, name_of(cards.back().network));
  }
  const Wiring wiring = wiring_of(cards);

  shm::JoinOptions near;
  // Containers may be hosts of their own and still share a network, and with it the names of sockets.
  near.job = fmt::format("{}/{}", meeting.name(), wiring.hosts[own.index()].value);
  near.join_limit = options.meeting.limit;
  near.liveness_limit = options.liveness_limit;
  LinkOptions far{.rank = own, .size = meeting.size(), .contacts = {}, .liveness = options.liveness_limit};
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const RankId rank(r);
    if (wiring.are_near(rank, own)) {
      if (rank == own) near.rank = RankId(near.names.size());
      near.names.push_back(rank);
    } else {
      far.contacts.push_back(
          {rank, std::move(cards[r].carrier), came_from[r], meeting.session(own, rank), meeting.session(rank, own)});
    }
  }
  near.size = static_cast<std::int32_t>(near.names.size());

  // Before those of this host meet: what others find out meanwhile is heard, and what is found out here is told.
  EarlyListener early(own);
  auto link = std::make_unique<Link>(std::move(luggage.carrier), far, early.listener());
  near.fault = [&] { return early.fault(); };
  std::shared_ptr<LocalTransport> local;
  try {
    local = shm::join(near);
  } catch (const Error& error) {
    // Ranks of other hosts would take this one for the reason.
    link->flood({error.code(), own, own, error.what()});
    throw;
  }
  Link& greeter = *link;
  auto transport = std::make_shared<HybridTransport>(own, wiring, local, [&](FarLink::Listener listener) {
    early.pass_on_to(std::move(listener));
    return std::move(link);
  });
  try {
    // Longer than those of another host wait for each other, to hear from them who is missing there.
    greeter.greet_all(options.meeting.limit + 2 * kPatienceWithHost, [&] { return local->fault(); });
  } catch (const Error& error) {
    // So that nobody waits for this rank, or takes it for the reason.
    transport->report(error.code(), own, error.what());
    throw;
  }
  return {std::move(transport), std::make_unique<FarReunion>(options, std::move(seating))};
}

Reunion::Outcome FarReunion::hold(Transport& old, std::chrono::milliseconds limit) {
  Luggage luggage(options_);
  const net::Meeting meeting = net::meet_survivors_of(old, seating_, limit, luggage.card);
  Outcome outcome{join_those_who_met(options_, seating_.rank, meeting, std::move(luggage)), meeting.former_ranks()};
  net::leave(old, seating_);
  return outcome;
}

}  // namespace

Joined join(const JoinOptions& options) {
  Luggage luggage(options);
  const net::Meeting meeting = net::meet(options.meeting, luggage.card);
  return join_those_who_met(options, options.meeting.rank, meeting, std::move(luggage));
}

}  // namespace shunt::far
