// The state of a World.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/fail.hpp"
#include "engine/operation.hpp"
#include "engine/progress.hpp"
#include "shunt/environment.hpp"
#include "shunt/world.hpp"
#include "transport/join.hpp"
#include "transport/transport.hpp"

namespace shunt {

struct DeviceHeap;

/// A transport with the Progress that drives it: shared by all worlds and engines on it.
class CommContext {
 public:
  CommContext(std::shared_ptr<Transport> transport, const Environment& environment)
      : environment_(environment),
        transport_(std::move(transport)),
        progress_(transport_, {static_cast<std::size_t>(environment.slice_bytes),
                               static_cast<std::uint32_t>(environment.ring_depth)}) {}

  [[nodiscard]] const Environment& environment() const { return environment_; }
  [[nodiscard]] Transport& transport() const { return *transport_; }
  [[nodiscard]] Progress& progress() { return progress_; }

  /// Poisons the world with the peer as culprit, and throws.
  [[noreturn]] void report_and_throw(const PeerError& error) const;

  /// As Transport::allocate; freed memory is returned to the system after a while.
  Block allocate(std::size_t bytes);

  /// Keeps the device memory of a part of the world that has ended, as freeing it would wait for kernels of all ranks
  /// of the process. It is freed after this rank has left, or by free_retired().
  void retire(std::shared_ptr<void> heap);
  void free_retired();

 private:
  /// Other owners of the transport may be left, such as the function that runs a spawned rank.
  struct Leaving {
    Transport& transport;
    ~Leaving() { transport.leave(); }
  };

  Environment environment_;
  std::mutex retired_mutex_;
  std::vector<std::shared_ptr<void>> retired_;
  std::shared_ptr<Transport> transport_;
  Leaving leaving_{*transport_};
  Progress progress_;
};

struct World::Impl {
  /// By device; made by the first engine there. Declared first, so that they are destroyed last: freeing device memory
  /// may wait for other ranks' kernels, which must learn before that this rank has left.
  std::map<std::int32_t, std::shared_ptr<DeviceHeap>> device_heaps = {};
  std::shared_ptr<CommContext> comm;
  std::shared_ptr<const Group> group;
  Topology topology;

  std::uint32_t next_sequence = 0;  // in the order of the world's own collectives
  std::uint32_t num_engines = 0;    // made so far; part of their keys
  std::uint32_t num_splits = 0;
  std::unique_ptr<Rebuilder> rebuilder = nullptr;  // null: can't be rebuilt
};

/// Makes a world of joined ranks.
std::shared_ptr<World::Impl> make_world(Joined joined, const Environment& environment);
}  // namespace shunt
