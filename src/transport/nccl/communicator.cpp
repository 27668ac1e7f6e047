#include "transport/nccl/communicator.hpp"

#include <chrono>
#include <thread>

#include "core/fail.hpp"

namespace shunt::nccl {
namespace {

constexpr std::chrono::milliseconds kPause{1};

/// All calls of this thread until its end are one group. An open group would also collect later calls.
class Group {
 public:
  explicit Group(const Library& library) : library_(library) {}
  ~Group() {
    if (is_open_) (void)library_.GroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int begin() {
    const int result = library_.GroupStart();
    is_open_ = result == kSuccess;
    return result;
  }
  [[nodiscard]] int end() {
    is_open_ = false;
    return library_.GroupEnd();
  }

 private:
  const Library& library_;
  bool is_open_ = false;
};

}  // namespace

Communicator::Communicator(const Library& library, const Place& place, const std::function<void()>& may_wait)
    : library_(library) {
  Config config;
  config.blocking = 0;
  check(library_.CommInitRankConfig(&comm_, place.size, place.id, place.rank.value, &config), "make a communicator");
  try {
    for (; !is_idle(); std::this_thread::sleep_for(kPause)) may_wait();
  } catch (...) {
    abort();
    throw;
  }
}

void Communicator::exchange(std::span<const Transfer> sends, std::span<const Transfer> receives, cudaStream_t stream) {
  Group group(library_);
  check(group.begin(), "begin a group");
  for (const Transfer& send : sends)
    check(library_.Send(send.memory, send.bytes, kBytes, send.peer.value, comm_, stream), "send");
  for (const Transfer& receive : receives)
    check(library_.Recv(receive.memory, receive.bytes, kBytes, receive.peer.value, comm_, stream), "receive");
  check(group.end(), "end a group");
}

bool Communicator::is_idle() const {
  int state = kSuccess;
  check(library_.CommGetAsyncError(comm_, &state), "ask a communicator how it is");
  check(state, "go on");
  return state != kInProgress;
}

void Communicator::abort() {
  if (comm_) (void)library_.CommAbort(comm_);
  comm_ = nullptr;
}

void Communicator::check(int result, const char* what) const {
  if (result != kSuccess && result != kInProgress)
    fail(ErrorCode::system, "NCCL: can't {}: {}", what, library_.GetErrorString(result));
}

}  // namespace shunt::nccl
