// Moves runs of rows between ranks, for exchanges that permute rows before and after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shunt/dtype.hpp"
#include "shunt/world.hpp"

namespace shunt {

/// Run (r → s) of rank r's send buffer becomes run r of rank s's receive buffer. Every call is collective.
class AllToAll {
 public:
  virtual ~AllToAll() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Returns every rank's `mine`, concatenated by rank; all have equal length.
  virtual std::vector<std::int32_t> all_gather(std::span<const std::int32_t> mine) = 0;
  /// Buffers for rows of the next exchange; counts are rows per peer.
  struct Buffers {
    std::byte* send;
    std::byte* receive;
  };
  virtual Buffers prepare(std::span<const std::int32_t> send_counts, std::span<const std::int32_t> receive_counts) = 0;
  virtual void forward() = 0;
  virtual void backward() = 0;
};

/// An all-to-all over shunt's own transport, named `unfused`: each rank is one expert and each row of the send buffer a
/// token with one choice, so that shunt's dispatch is a plain all-to-all of rows, in both directions. Combine could
/// carry the way back, but it processes rows in token order, which here is by destination: between machines, the peers'
/// links would be busy one after another.
std::shared_ptr<AllToAll> make_engine_all_to_all(World& world, std::int64_t hidden, DType dtype);

}  // namespace shunt
