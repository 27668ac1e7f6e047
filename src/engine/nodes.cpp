#include "engine/nodes.hpp"

#include <sstream>
#include <string_view>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "core/host_name.hpp"
#include "engine/exchange.hpp"

namespace shunt {
namespace {

/// What a rank tells the others.
struct Note {
  std::uint64_t nodes = 0;  ///< Topology::hash()
  std::string host;
  std::string error;  ///< empty: none

  [[nodiscard]] std::string text() const { return fmt::format("{}\n{}\n{}", nodes, host, error); }
  static Note read(std::span<const std::byte> bytes) {
    Note note;
    std::istringstream text(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    text >> note.nodes;
    text.ignore();
    std::getline(text, note.host);
    std::getline(text, note.error, '\0');
    return note;
  }
};

/// By rank. Not one of the calls that users count.
std::vector<Note> swap_notes(World::Impl& world, const Note& mine) {
  std::vector<Note> notes;
  std::uint32_t sequence = 0;
  const std::uint64_t id = Hasher().add(world.group->id).add_all<char>(std::string_view("nodes")).value();
  const std::string text = mine.text();
  exchange({*world.fabric, world.group, world.topology, id, sequence, world.fabric->environment().deadline},
           OpKind::join, std::as_bytes(std::span(text)), {text.size()},
           [&](std::span<const std::span<const std::byte>> all) {
             for (const auto bytes : all) notes.push_back(Note::read(bytes));
           });
  return notes;
}

void check_notes(const std::vector<Note>& notes) {
  for (std::size_t rank = 0; rank < notes.size(); ++rank)
    if (!notes[rank].error.empty())
      fail(ErrorCode::invalid_argument, "rank {} on {}: {}", rank, notes[rank].host, notes[rank].error);
  for (std::size_t rank = 0; rank < notes.size(); ++rank)
    if (notes[rank].nodes != notes.front().nodes)
      fail(ErrorCode::mismatch,
           "rank {} on {} has other nodes than rank 0 on {}: compare their SHUNT_TOPOLOGY and SHUNT_VIRTUAL_NODES",
           rank, notes[rank].host, notes.front().host);
}

void check_hosts(const Topology& topology, std::span<const HostId> hosts, const std::vector<Note>& notes) {
  for (std::int32_t node = 0; node < topology.num_nodes(); ++node) {
    const auto ranks = topology.ranks(NodeId(node));
    for (const RankId rank : ranks)
      if (hosts[rank.index()] != hosts[ranks.front().index()])
        fail(
            ErrorCode::invalid_argument,
            "SHUNT_TOPOLOGY: node {} has rank {} on {} and rank {} on {}; a node's ranks share memory, so they must be "
            "on one host",
            node, ranks.front(), notes[ranks.front().index()].host, rank, notes[rank.index()].host);
  }
}

}  // namespace

Topology declared_nodes(const Environment& environment, std::int32_t num_ranks) {
  if (environment.topology_file.empty()) return Topology::virtual_nodes(num_ranks, environment.virtual_nodes);
  Topology topology = Topology::from_file(environment.topology_file);
  if (topology.num_ranks() != num_ranks)
    fail(ErrorCode::invalid_argument, "{}: nodes: {} ranks, but the world has {}", environment.topology_file,
         topology.num_ranks(), num_ranks);
  return topology;
}

void settle_nodes(World::Impl& world) {
  const Environment& environment = world.fabric->environment();
  const Group& group = *world.group;
  Topology topology = world.topology;
  Note mine;
  mine.host = host_name();
  try {
    if (!group.has_far() || !environment.topology_file.empty()) topology = declared_nodes(environment, group.size());
    mine.nodes = topology.hash();
  } catch (const Error& error) {
    mine.error = error.what();
  }
  const std::vector<Note> notes = swap_notes(world, mine);
  check_notes(notes);
  check_hosts(topology, group.wiring.hosts, notes);
  world.topology = std::move(topology);
}

}  // namespace shunt
