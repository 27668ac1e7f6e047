// A rank that speaks the engine's protocol by hand, and so can say what no honest rank would.
#pragma once

#include <functional>
#include <string>

#include "engine/operation_table.hpp"
#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "transport/transport.hpp"

namespace shunt::test {

/// Rank 1's end of a world of two, on two islands. `about` is the operation that it speaks of.
class Liar {
 public:
  explicit Liar(Transport& end) : end_(end) {}

  SignalRecord about{.engine = 0,
                     .sequence = 0,
                     .signal = Signal::grant,
                     .kind = OpKind::barrier,
                     .unused = 0,
                     .plan_hash = 0,
                     .offset = 1,
                     .bytes = 1024,
                     .second_offset = 0};

  /// Sends `about`, or as much of it.
  void say(std::size_t bytes = sizeof(SignalRecord));
  void grant(std::uint64_t num_slices, std::uint64_t bytes_each = 1024);
  void send_slice(std::size_t bytes, std::uint32_t index = 0, bool is_last = true);
  /// The next signal of rank 0.
  SignalRecord hear();
  InSlice await_slice();

 private:
  void await(const std::function<bool()>& condition);

  Transport& end_;
};

/// Runs rank 0 honestly, against a liar. Returns what rank 0 was told, and fails the test unless the fault is a
/// mismatch of which rank 1 is the culprit.
std::string error_against(const std::function<void(World&)>& honest, const std::function<void(Liar&)>& lie,
                          Environment environment = {});

}  // namespace shunt::test
