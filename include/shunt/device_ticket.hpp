// A handle on an operation that a device carries out.
#pragma once

#include <memory>
#include <utility>

#include "shunt/stream.hpp"

namespace shunt {

/// The part of an operation that tickets need.
class DevicePending {
 public:
  virtual ~DevicePending() = default;
  virtual void wait() = 0;
  virtual void wait_on(Stream stream) = 0;
};

/// Complete means: this rank's output is whole *and* its inputs may be reused, but for DeviceDecoder::expert_out(). The
/// operation proceeds whether or not anyone waits, and dropping a ticket waits for nothing.
template <class Result>
class DeviceTicket {
 public:
  DeviceTicket(std::shared_ptr<DevicePending> pending, Result result)
      : pending_(std::move(pending)), result_(std::move(result)) {}

  /// The host waits. Throws the Error that ended the operation, or one before it.
  Result wait() {
    pending_->wait();
    return result_;
  }

  /// What is put on the stream later starts when the operation is complete; the host does not wait. If the operation
  /// fails, the stream goes on with undefined rows, and the engine's next call throws.
  Result wait_on(Stream stream) {
    pending_->wait_on(stream);
    return result_;
  }

 private:
  std::shared_ptr<DevicePending> pending_;
  Result result_;
};

}  // namespace shunt
