// A rank that sends the engine's signals and slices by hand, and so can break its protocol.
#pragma once

#include <functional>
#include <string>

#include "engine/operation_table.hpp"
#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "transport/transport.hpp"

namespace shunt::test {

/// Rank 1's end of a world of two, on two islands. `signal` is the next signal to send.
class RoguePeer {
 public:
  explicit RoguePeer(Transport& end) : end_(end) {}

  SignalRecord signal{.signal = Signal::grant, .kind = OpKind::barrier, .offset = 1, .bytes = 1024};

  /// Sends `signal`, or only its first bytes.
  void send_signal(std::size_t bytes = sizeof(SignalRecord));
  void grant(std::uint64_t num_slices, std::uint64_t bytes_each = 1024);
  void send_slice(std::size_t bytes, std::uint32_t index = 0, bool is_last = true);
  /// The next signal of rank 0.
  SignalRecord receive_signal();
  InSlice await_slice();

 private:
  void await(const std::function<bool()>& condition);

  Transport& end_;
};

/// Runs an honest rank 0 against a rogue rank 1. Returns the text of rank 0's Error, and fails the test unless the
/// fault is a mismatch of which rank 1 is the culprit.
std::string error_against(const std::function<void(World&)>& honest, const std::function<void(RoguePeer&)>& rogue,
                          Environment environment = {});

}  // namespace shunt::test
