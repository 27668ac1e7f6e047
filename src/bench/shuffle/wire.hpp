// The floor of a shuffle between hosts: the same bytes between the same ranks over plain TCP, and nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/world.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::bench {

class Wire {
 public:
  /// Collective: connects each pair of ranks that has something to send. `bytes_to` is by rank.
  Wire(World& world, const std::vector<std::uint64_t>& bytes_to);

  /// All ranks at once.
  void forward() { move(&Connection::bytes_to, &Connection::bytes_from); }
  void backward() { move(&Connection::bytes_from, &Connection::bytes_to); }

 private:
  struct Connection {
    std::int32_t peer;
    std::uint64_t bytes_to;
    std::uint64_t bytes_from;
    Descriptor socket;
  };
  using Bytes = std::uint64_t Connection::*;

  void meet(std::int32_t rank, const std::vector<std::string>& places, const std::vector<Descriptor>& listeners);
  void move(Bytes sent, Bytes received);

  std::vector<Connection> connections_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

}  // namespace shunt::bench
