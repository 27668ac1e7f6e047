#include "transport/join.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "core/build.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "core/process_id.hpp"
#include "core/wiring.hpp"
#include "transport/bootstrap/authentication.hpp"
#include "transport/far/link.hpp"
#include "transport/far/make_carrier.hpp"
#include "transport/hybrid/hybrid_transport.hpp"
#include "transport/inproc/join.hpp"
#include "transport/shm/attach.hpp"

namespace shunt {
namespace {

using net::Bytes;
using Clock = std::chrono::steady_clock;

// Beyond a step's deadline, so that an error of its last moment still reaches all ranks.
constexpr std::chrono::milliseconds kGrace{2000};

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::max(deadline - Clock::now(), Clock::duration(0)));
}

/// Errors that another rank's error may have caused come last.
int order_of(ErrorCode code) { return code == ErrorCode::peer_lost ? 2 : code == ErrorCode::deadline ? 1 : 0; }

/// make()'s result on each rank, by rank. Where it throws on a rank, all ranks throw the error that caused the others.
template <class Make>
std::vector<Bytes> gather(Bootstrap& bootstrap, Clock::time_point deadline, Make make) {
  constexpr std::uint8_t kMade = 0xff;
  constexpr std::size_t kMostText = 1000;
  Bytes mine;
  try {
    mine = net::pack(kMade, make());
  } catch (const std::exception& error) {
    const auto* const own = dynamic_cast<const Error*>(&error);
    std::string text = error.what();
    if (!text.starts_with("rank ")) text = fmt::format("rank {} on {}: {}", bootstrap.rank(), host_name(), text);
    mine = net::pack(static_cast<std::uint8_t>(own ? own->code() : ErrorCode::system),
                     net::bytes_of(std::string_view(text).substr(0, kMostText)));
  }
  std::vector<Bytes> all = bootstrap.all_gather(mine, until(deadline) + kGrace);
  if (all.size() != static_cast<std::size_t>(bootstrap.size()))
    fail(ErrorCode::mismatch, "rank {}: the bootstrap gathered the bytes of {} ranks, not of {}", bootstrap.rank(),
         all.size(), bootstrap.size());
  std::optional<Error> root;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::uint8_t code = 0;
    Bytes rest;
    if (!net::unpack(all[rank], code, rest) || (code != kMade && code > static_cast<std::uint8_t>(ErrorCode::internal)))
      fail(ErrorCode::mismatch, "rank {} joins with bytes that make no sense: it is another build of shunt", rank);
    if (code != kMade) {
      const Error error(static_cast<ErrorCode>(code), net::text_of(rest));
      if (!root || order_of(error.code()) < order_of(root->code())) root = error;
    }
    all[rank] = std::move(rest);
  }
  if (root) throw *root;
  return all;
}

/// Whether ranks of one machine count as machines of their own.
bool is_emulated(const Environment& environment) { return environment.network.link_bytes_per_s > 0; }

/// Equal for ranks that can share memory: one running system and, as sockets pass the memory on, one network.
std::uint64_t machine_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  Hasher hasher;
  for (const std::string& text : {boot, host_name()}) hasher.add_all<char>(text);
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/ipc"}) {
    struct stat status {};
    if (stat(space, &status) == 0) hasher.add(status.st_ino);
  }
  return hasher.value();
}

/// Equal for ranks that are threads of one process.
std::uint64_t process_identity() {
  // A forked child has the same number, but another process id.
  static const std::uint64_t drawn = std::random_device()() | std::uint64_t{std::random_device()()} << 32;
  const ProcessId process = ProcessId::own();
  return Hasher().add(drawn).add(process.name_space).add(static_cast<std::uint64_t>(process.number)).value();
}

/// What identifies a rank.
struct Identity {
  std::string build;
  std::string host;  // its name, for messages
  std::uint64_t machine = 0;
  std::uint64_t process = 0;
  std::uint64_t nic = 0;
  std::uint64_t nodes = 0;  // the hash of a given topology, 0 for none
  far::Network network{};
  std::int32_t virtual_nodes = 1;  // without one, on one machine
  bootstrap::Nonce nonce{};

  [[nodiscard]] Bytes bytes() const {
    return net::pack(build, host, machine, process, nic, nodes, network, virtual_nodes, nonce);
  }
  /// Another build's may make no sense.
  explicit Identity(const Bytes& bytes) {
    (void)net::unpack(bytes, build, host, machine, process, nic, nodes, network, virtual_nodes, nonce);
  }
  Identity() = default;
};

/// Where a rank can be reached.
struct Endpoints {
  std::string near;         // by ranks of its machine
  std::string address;      // by ranks of other machines
  net::Endpoint survivors;  // where it listens after a fault
  Bytes carrier;            // its carrier's address

  [[nodiscard]] Bytes bytes() const { return net::pack(near, address, survivors.port, survivors.address, carrier); }
  Endpoints(const Bytes& bytes, RankId rank) {
    if (!net::unpack(bytes, near, address, survivors.port, survivors.address, carrier))
      fail(ErrorCode::mismatch, "rank {} published malformed endpoints ({} bytes)", rank, bytes.size());
  }
  Endpoints() = default;
};

/// Machines and NICs are numbered in the order of their first ranks.
Wiring wiring_of(const std::vector<Identity>& identities) {
  Wiring wiring;
  std::map<std::uint64_t, HostId> hosts;
  std::map<std::uint64_t, NicId> nics;
  for (const Identity& each : identities)
    wiring.add(hosts.try_emplace(each.machine, hosts.size()).first->second,
               nics.try_emplace(each.nic, nics.size()).first->second);
  return wiring;
}

void expect_one_build(const std::vector<Identity>& identities) {
  for (std::size_t rank = 0; rank < identities.size(); ++rank)
    if (identities[rank].build != identities[0].build)
      fail(ErrorCode::mismatch, "rank {} on {} runs shunt {}, rank 0 on {} shunt {}: all ranks need the same build",
           rank, identities[rank].host, identities[rank].build, identities[0].host, identities[0].build);
}

void expect_one_network(const std::vector<Identity>& identities) {
  for (std::size_t rank = 0; rank < identities.size(); ++rank)
    if (identities[rank].network != identities[0].network)
      fail(ErrorCode::mismatch, "rank {} on {} would use {}, rank 0 on {} {}; set SHUNT_NETWORK", rank,
           identities[rank].host, name_of(identities[rank].network), identities[0].host,
           name_of(identities[0].network));
}

void expect_nodes_within_machines(const Topology& topology, const Wiring& wiring,
                                  const std::vector<Identity>& identities) {
  for (std::int32_t node = 0; node < topology.num_nodes(); ++node) {
    const auto ranks = topology.ranks(NodeId(node));
    for (const RankId rank : ranks)
      if (!wiring.are_near(rank, ranks.front()))
        fail(ErrorCode::invalid_argument,
             "SHUNT_TOPOLOGY: node {} has rank {} on {} and rank {} on {}; a node's ranks share memory, so they must "
             "be on one host",
             node, ranks.front(), identities[ranks.front().index()].host, rank, identities[rank.index()].host);
  }
}

/// The same on all ranks.
Topology agree_on_nodes(const std::optional<Topology>& given, const Wiring& wiring,
                        const std::vector<Identity>& identities) {
  const bool is_one_machine = wiring.is_one_host();
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const Identity& each = identities[rank];
    if (each.nodes != identities[0].nodes || (is_one_machine && each.virtual_nodes != identities[0].virtual_nodes))
      fail(ErrorCode::mismatch,
           "rank {} on {} has other nodes than rank 0 on {}: compare their SHUNT_TOPOLOGY and SHUNT_VIRTUAL_NODES",
           rank, each.host, identities[0].host);
  }
  if (given) {
    expect_nodes_within_machines(*given, wiring, identities);
    return *given;
  }
  const auto num_ranks = static_cast<std::int32_t>(identities.size());
  if (is_one_machine) return Topology::virtual_nodes(num_ranks, identities[0].virtual_nodes);
  std::vector<NodeId> nodes;
  for (const HostId host : wiring.hosts) nodes.emplace_back(host.value);
  return Topology::from_nodes(std::move(nodes));
}

/// One rank that joins a world, step by step.
class Joining {
 public:
  Joining(Bootstrap& bootstrap, const Environment& environment, const std::optional<Topology>& topology)
      : bootstrap_(bootstrap),
        environment_(environment),
        self_(bootstrap.rank()),
        deadline_(Clock::now() + environment.join),
        given_nodes_(topology) {}

  Joined run() {
    for (const Bytes& bytes : gather(bootstrap_, deadline_, [&] { return identify().bytes(); }))
      identities_.emplace_back(bytes);
    expect_one_build(identities_);
    wiring_ = wiring_of(identities_);
    Topology topology = agree_on_nodes(given_nodes_, wiring_, identities_);
    if (has_far()) expect_one_network(identities_);
    std::vector<bootstrap::Nonce> nonces;
    for (const Identity& each : identities_) nonces.push_back(each.nonce);
    key_.emplace(bootstrap_.secret(), nonces);

    deadline_ = Clock::now() + environment_.join;
    const auto contacts = gather(bootstrap_, deadline_, [&] { return open_for_others().bytes(); });
    for (std::size_t rank = 0; rank < contacts.size(); ++rank) endpoints_.emplace_back(contacts[rank], RankId(rank));

    std::shared_ptr<Transport> transport;
    (void)gather(bootstrap_, deadline_, [&] {
      try {
        transport = connect();
      } catch (...) {
        // Closes connections, so that ranks which wait for this one fail at once.
        near_.reset();
        carrier_.reset();
        throw;
      }
      return Bytes();
    });
    return {std::move(transport), std::move(topology), make_rebuilder()};
  }

 private:
  [[nodiscard]] bool has_far() const { return !wiring_.is_one_host(); }
  [[nodiscard]] bool is_near(std::size_t rank) const { return wiring_.are_near(RankId(rank), self_); }
  /// Ranks of this machine that are other processes.
  [[nodiscard]] bool has_other_processes() const {
    for (std::size_t rank = 0; rank < identities_.size(); ++rank)
      if (is_near(rank) && identities_[rank].process != identities_[self_.index()].process) return true;
    return false;
  }

  Identity identify() {
    (void)checked(environment_);
    if (given_nodes_ && given_nodes_->num_ranks() != bootstrap_.size())
      fail(ErrorCode::invalid_argument, "rank {}: the topology has {} ranks, the bootstrap {}", self_,
           given_nodes_->num_ranks(), bootstrap_.size());
    if (!given_nodes_ && !environment_.topology_file.empty())
      given_nodes_ = declared_nodes(environment_, bootstrap_.size());
    Identity mine;
    mine.build = build_id();
    mine.host = host_name();
    mine.machine = machine_identity();
    if (is_emulated(environment_)) mine.machine = Hasher().add(mine.machine, self_.value).value();
    mine.process = process_identity();
    mine.nic = Hasher().add(mine.machine).add_all<char>(environment_.network.devices).value();
    mine.network = far::choose_network(environment_.network);
    mine.nodes = given_nodes_ ? given_nodes_->hash() : 0;
    mine.virtual_nodes = environment_.virtual_nodes;
    mine.nonce = bootstrap::draw_nonce();
    return mine;
  }

  /// The address for ranks of other machines.
  [[nodiscard]] std::string own_address() const {
    if (const std::string known = bootstrap_.address(); !known.empty() && !net::is_loopback(known)) return known;
    const std::vector<std::string> addresses = net::own_addresses(environment_.network.interface);
    return addresses.empty() ? "127.0.0.1" : addresses.front();
  }

  Endpoints open_for_others() {
    Endpoints mine;
    if (has_other_processes()) mine.near = near_.emplace(shm::open_near_listener()).endpoint.address;
    if (has_far()) {
      mine.address = own_address();
      carrier_ = far::make_carrier(identities_[self_.index()].network, environment_.network);
      mine.carrier = carrier_->address();
      survivors_ = net::open_listener(environment_.network.interface, environment_.network.port_range);
    } else if (near_) {
      survivors_ = net::open_local_listener(mine.near + "/survivors");
    }
    mine.survivors = survivors_.endpoint;
    if (mine.survivors.address.empty()) mine.survivors.address = mine.address;
    return mine;
  }

  /// Endpoints of this machine's ranks, or of all others.
  [[nodiscard]] std::vector<net::Contact> contacts_of(bool are_near) const {
    std::vector<net::Contact> chosen;
    for (std::size_t r = 0; r < endpoints_.size(); ++r)
      if (const RankId rank(r); is_near(r) == are_near)
        chosen.push_back({rank, endpoints_[r].carrier, are_near ? endpoints_[r].near : endpoints_[r].address,
                          key_->session(self_, rank), key_->session(rank, self_)});
    return chosen;
  }

  std::shared_ptr<Transport> connect() {
    const auto near = contacts_of(true);
    shm::Attached attached;
    if (near_)
      attached = shm::attach(self_, near, until(deadline_), *near_);
    else
      attached.segments = inproc::segments_of(key_->token(), near.size());
    std::shared_ptr<HybridTransport> hybrid;
    std::shared_ptr<LocalTransport> transport;
    if (has_far())
      transport = hybrid = std::make_shared<HybridTransport>(
          self_, wiring_, std::move(attached.segments), std::move(carrier_), contacts_of(false), environment_.liveness);
    else
      transport = std::make_shared<LocalTransport>(self_, std::move(attached.segments));
    if (near_) transport->watch(std::move(attached.sockets), environment_.liveness);
    if (hybrid) hybrid->connect_all(until(deadline_));
    return transport;
  }

  std::unique_ptr<Rebuilder> make_rebuilder() {
    if (!survivors_.socket.valid()) return nullptr;
    bootstrap::SurvivorContacts kept{
        .rank = self_, .own = std::move(survivors_), .endpoints = {}, .token = key_->token()};
    for (const Endpoints& each : endpoints_) kept.endpoints.push_back(each.survivors);
    return std::make_unique<Rebuilder>(environment_, std::move(kept));
  }

  Bootstrap& bootstrap_;
  const Environment& environment_;
  RankId self_;
  Clock::time_point deadline_;
  std::optional<Topology> given_nodes_;
  std::vector<Identity> identities_;  // by rank
  Wiring wiring_;
  std::optional<bootstrap::WorldKey> key_;
  std::optional<net::Listener> near_;      // none where no other process is near
  std::unique_ptr<far::Carrier> carrier_;  // none where no rank is far
  net::Listener survivors_;
  std::vector<Endpoints> endpoints_;  // by rank
};

}  // namespace

Environment checked(Environment environment) {
  environment.liveness = Environment::checked("world: liveness", environment.liveness);
  environment.deadline = Environment::checked("world: deadline", environment.deadline);
  environment.join = Environment::checked("world: join", environment.join);
  return environment;
}

Topology declared_nodes(const Environment& environment, std::int32_t num_ranks) {
  if (environment.topology_file.empty())
    return Topology::virtual_nodes(num_ranks, is_emulated(environment) ? num_ranks : environment.virtual_nodes);
  Topology topology = Topology::from_file(environment.topology_file);
  if (topology.num_ranks() != num_ranks)
    fail(ErrorCode::invalid_argument, "{}: nodes: {} ranks, but the world has {}", environment.topology_file,
         topology.num_ranks(), num_ranks);
  return topology;
}

Rebuilder::Rebuilt Rebuilder::rebuild(Transport& old, const Topology& topology) {
  const auto survivors = join_survivors(contacts_, bootstrap::losses_of(old), environment_.join);
  Rebuilt rebuilt{join(*survivors, environment_, topology.subset(survivors->members())), survivors->members()};
  // Not before: while the new world is incomplete, another loss makes survivors join again.
  contacts_.own = {};
  old.leave();
  return rebuilt;
}

Joined join(Bootstrap& bootstrap, const Environment& environment, const std::optional<Topology>& topology) {
  if (bootstrap.rank().value < 0 || bootstrap.rank().value >= bootstrap.size())
    fail(ErrorCode::invalid_argument, "rank {} can't join {} ranks", bootstrap.rank(), bootstrap.size());
  Environment chosen = environment;
  if (is_emulated(environment)) {
    chosen.network.kind = "tcp";
    if (chosen.network.interface.empty()) chosen.network.interface = "lo";
    if (chosen.network.devices.empty()) chosen.network.devices = chosen.network.interface;
  }
  return Joining(bootstrap, chosen, topology).run();
}

}  // namespace shunt
