// One rank's end of an NCCL communicator, none of whose calls block.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "shunt/ids.hpp"
#include "transport/nccl/library.hpp"

namespace shunt::nccl {

/// One thread at a time.
class Communicator {
 public:
  struct Place {
    RankId rank;
    std::int32_t size;
    UniqueId id;  ///< from rank 0
  };

  /// Collective. `may_wait` is called repeatedly while ranks are missing, and throws to end the wait.
  Communicator(const Library& library, const Place& place, const std::function<void()>& may_wait);
  /// Aborts; not collective. Finalizing would wait for the other ranks of the machine. So all transfers must have ended
  /// before, which operations confirm over the world's network.
  ~Communicator() { abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  struct Transfer {
    RankId peer;
    std::byte* memory;
    std::size_t bytes;
  };

  /// Puts the transfers on the stream, as one group; ranks that exchange something call this in the same order. Until
  /// is_idle() they may not be there yet: what needs them is put on the stream later.
  void exchange(std::span<const Transfer> sends, std::span<const Transfer> receives, cudaStream_t stream);
  /// True once the last call has had its effect. Throws Error(system) if NCCL has failed.
  [[nodiscard]] bool is_idle() const;

  /// Ends the device's transfers, also those that wait for a lost rank. No other call may follow.
  void abort();

 private:
  void check(int result, const char* what) const;

  const Library& library_;
  Comm comm_ = nullptr;
};

}  // namespace shunt::nccl
