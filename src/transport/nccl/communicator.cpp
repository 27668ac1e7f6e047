#include "transport/nccl/communicator.hpp"

#include <chrono>
#include <thread>

#include "core/fail.hpp"

namespace shunt::nccl {
namespace {

constexpr std::chrono::milliseconds kPause{1};

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
  check(library_.GroupStart(), "begin a group");
  try {
    for (const Transfer& send : sends)
      check(library_.Send(send.memory, send.bytes, kBytes, send.peer.value, comm_, stream), "send");
    for (const Transfer& receive : receives)
      check(library_.Recv(receive.memory, receive.bytes, kBytes, receive.peer.value, comm_, stream), "receive");
  } catch (...) {
    (void)library_.GroupEnd();  // an open group would also collect later calls of this thread
    throw;
  }
  check(library_.GroupEnd(), "end a group");
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
