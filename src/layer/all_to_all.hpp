// Moves rows between ranks in runs, for exchanges that permute rows before and after.
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
  /// Every rank's `mine`, concatenated by rank; all of equal length.
  virtual std::vector<std::int32_t> all_gather(std::span<const std::int32_t> mine) = 0;
  /// Buffers for rows of the coming counts, in rows per peer.
  struct Buffers {
    std::byte* send;
    std::byte* receive;
  };
  virtual Buffers prepare(std::span<const std::int32_t> send_counts, std::span<const std::int32_t> receive_counts) = 0;
  virtual void forward() = 0;
  virtual void backward() = 0;
};

/// Over shunt's own transport: each rank is one expert and each row of the send buffer a token with one choice, so that
/// shunt's own dispatch is a plain all-to-all of rows, either way. Combine would do for the way back, but it takes rows
/// in the order of tokens, which here is by destination: between hosts one peer's link after the other would be busy.
/// Named `unfused`.
std::shared_ptr<AllToAll> make_engine_all_to_all(World& world, std::int64_t hidden, DType dtype);

}  // namespace shunt
