// The `wire` baseline between machines: moves the same bytes between the same ranks over plain TCP.
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/world.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::bench {

class Wire {
 public:
  /// Collective: connects each pair of ranks that exchanges bytes. bytes_to: bytes that this rank sends to each rank.
  Wire(World& world, const std::vector<std::uint64_t>& bytes_to);

  /// Collective: moves all bytes, and the same numbers of bytes back.
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

  void connect(std::int32_t rank, const std::vector<std::string>& endpoints, const std::vector<Descriptor>& listeners);
  void move(Bytes sent, Bytes received);

  std::vector<Connection> connections_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

}  // namespace shunt::bench
