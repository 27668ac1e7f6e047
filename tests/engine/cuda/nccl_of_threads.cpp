#include "engine/cuda/nccl_of_threads.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "engine/cuda/host_lane.hpp"

namespace shunt::nccl {

/// What one rank holds of a communicator.
struct OpaqueComm {
  std::uint64_t id;
  int rank;
  int polls_left = 0;  // until the last call has its effect
};

}  // namespace shunt::nccl

namespace shunt::test {
namespace {

using nccl::Comm;

/// What is on its way.
struct Post {
  using Flow = std::tuple<std::uint64_t, int, int>;  // communicator, from, to

  std::mutex mutex;
  std::map<Flow, std::deque<std::vector<std::byte>>> sent;
};
Post& post() {
  static Post all;
  return all;
}

struct Group {
  struct Transfer {
    std::byte* memory;
    std::size_t bytes;
    int peer;
  };
  Comm comm = nullptr;
  HostLane* lane = nullptr;
  std::vector<Transfer> sends, receives;
  bool is_sent = false;
};
thread_local Group group;

void send_all(const Group& all) {
  const std::lock_guard lock(post().mutex);
  for (const Group::Transfer& send : all.sends)
    post().sent[{all.comm->id, all.comm->rank, send.peer}].emplace_back(send.memory, send.memory + send.bytes);
}

/// False while something has not come.
bool receive_all(const Group& all) {
  const std::lock_guard lock(post().mutex);
  const auto queue = [&](const Group::Transfer& receive) -> auto& {
    return post().sent[{all.comm->id, receive.peer, all.comm->rank}];
  };
  for (const Group::Transfer& receive : all.receives)
    if (queue(receive).empty()) return false;
  for (const Group::Transfer& receive : all.receives) {
    const std::vector<std::byte>& bytes = queue(receive).front();
    if (bytes.size() != receive.bytes) throw std::runtime_error("a receive does not match its send");
    std::ranges::copy(bytes, receive.memory);
    queue(receive).pop_front();
  }
  return true;
}

void add(std::vector<Group::Transfer>& transfers, const void* memory, std::size_t bytes, int peer, Comm comm,
         Stream stream) {
  transfers.push_back({static_cast<std::byte*>(const_cast<void*>(memory)), bytes, peer});
  group.comm = comm;
  group.lane = &HostLane::of(stream);
}

}  // namespace

const nccl::Library& nccl_of_threads() {
  static const nccl::Library library{
      .GetVersion = nullptr,
      .GetUniqueId = nullptr,
      .CommInitRankConfig = [](Comm* comm, int, nccl::UniqueId id, int rank, nccl::Config*) -> int {
        std::uint64_t number = 0;
        std::memcpy(&number, id.bytes, sizeof(number));
        *comm = new nccl::OpaqueComm{number, rank};
        return nccl::kInProgress;
      },
      .CommFinalize = [](Comm) -> int { return nccl::kSuccess; },
      .CommDestroy = [](Comm comm) -> int {
        delete comm;
        return nccl::kSuccess;
      },
      .CommAbort = [](Comm comm) -> int {
        delete comm;
        return nccl::kSuccess;
      },
      .CommGetAsyncError = [](Comm comm, int* state) -> int {
        *state = comm->polls_left > 0 ? nccl::kInProgress : nccl::kSuccess;
        comm->polls_left = std::max(comm->polls_left - 1, 0);
        return nccl::kSuccess;
      },
      .GroupStart = []() -> int {
        group = {};
        return nccl::kSuccess;
      },
      .GroupEnd = []() -> int {
        group.comm->polls_left = 2;
        group.lane->put([mine = group]() mutable {
          if (!std::exchange(mine.is_sent, true)) send_all(mine);
          return receive_all(mine);
        });
        return nccl::kInProgress;
      },
      .Send = [](const void* from, std::size_t bytes, int, int peer, Comm comm, cudaStream_t stream) -> int {
        add(group.sends, from, bytes, peer, comm, stream);
        return nccl::kSuccess;
      },
      .Recv = [](void* to, std::size_t bytes, int, int peer, Comm comm, cudaStream_t stream) -> int {
        add(group.receives, to, bytes, peer, comm, stream);
        return nccl::kSuccess;
      },
      .GetErrorString = [](int) { return "none"; }};
  return library;
}

}  // namespace shunt::test
