#include "engine/cuda/connections.hpp"

#include <map>
#include <mutex>

namespace shunt::device {
namespace {

struct Streams {
  std::mutex mutex;
  std::map<std::int32_t, std::map<cudaStream_t, std::int32_t>> users;  // of each stream, by device
};

Streams& streams() {
  static Streams all;
  return all;
}

}  // namespace

StreamInUse::StreamInUse(std::int32_t device, cudaStream_t stream) : device_(device), stream_(stream) {
  const std::lock_guard lock(streams().mutex);
  ++streams().users[device][stream];
}

StreamInUse::~StreamInUse() {
  const std::lock_guard lock(streams().mutex);
  auto& users = streams().users[device_];
  if (--users[stream_] == 0) users.erase(stream_);
}

std::int32_t StreamInUse::num_streams(std::int32_t device) {
  const std::lock_guard lock(streams().mutex);
  return static_cast<std::int32_t>(streams().users[device].size());
}

}  // namespace shunt::device
