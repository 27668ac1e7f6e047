// What all worlds and engines on one transport share.
#pragma once

#include <memory>

#include "core/fail.hpp"
#include "engine/progress.hpp"
#include "shunt/environment.hpp"
#include "transport/transport.hpp"

namespace shunt {

class Fabric {
 public:
  Fabric(std::shared_ptr<Transport> transport, const Environment& environment)
      : environment_(environment),
        transport_(std::move(transport)),
        progress_(transport_, {static_cast<std::size_t>(environment.slice_bytes),
                               static_cast<std::uint32_t>(environment.ring_depth)}) {}

  [[nodiscard]] const Environment& environment() const { return environment_; }
  [[nodiscard]] Transport& transport() const { return *transport_; }
  [[nodiscard]] Progress& progress() { return progress_; }

  /// Poisons the world because of what a peer did, and throws it.
  [[noreturn]] void blame(const PeerError& error) const;

  /// As Transport::allocate; freed memory finds its way back to the machine.
  Block allocate(std::size_t bytes);

 private:
  Environment environment_;
  std::shared_ptr<Transport> transport_;
  Progress progress_;
};

}  // namespace shunt
