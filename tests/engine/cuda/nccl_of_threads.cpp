#include "engine/cuda/nccl_of_threads.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/host_lane.hpp"

namespace shunt::nccl {

/// What one rank holds of a communicator. Shared with what it has launched, which may outlive it.
struct OpaqueComm {
  struct End {
    std::uint64_t number;
    int rank;
    test::NcclTrouble trouble;
    std::atomic<bool> is_aborted{false};

    End(std::uint64_t number_of_all, int rank_of_this, test::NcclTrouble trouble_here)
        : number(number_of_all), rank(rank_of_this), trouble(trouble_here) {}
  };

  std::shared_ptr<End> end;
  int polls_left = 0;  // until the last call has its effect
  bool has_launched = false;
  int polls_before_loss = 4;
};

}  // namespace shunt::nccl

namespace shunt::test {
namespace {

using nccl::Comm;
using End = nccl::OpaqueComm::End;

constexpr int kInternalError = 3;

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
  std::shared_ptr<End> end;
  HostLane* lane = nullptr;
  std::vector<Transfer> sends, receives;
  bool is_sent = false;
};
thread_local Group group;
thread_local int num_open_groups = 0;
std::atomic<std::uint64_t> num_groups{0};

void send_all(const Group& all) {
  const std::lock_guard lock(post().mutex);
  for (const Group::Transfer& send : all.sends)
    post().sent[{all.end->number, all.end->rank, send.peer}].emplace_back(send.memory, send.memory + send.bytes);
}

/// False while something has not come.
bool receive_all(const Group& all) {
  const std::lock_guard lock(post().mutex);
  const auto queue = [&](const Group::Transfer& receive) -> auto& {
    return post().sent[{all.end->number, receive.peer, all.end->rank}];
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
  group.end = comm->end;
  group.lane = &HostLane::of(stream);
}

/// True once nothing is left to do.
bool carry_out(Group& all) {
  if (all.end->is_aborted) return true;
  if (all.end->trouble == NcclTrouble::lost_group) return false;
  if (!std::exchange(all.is_sent, true)) send_all(all);
  return receive_all(all);
}

int end_group() {
  if (--num_open_groups > 0 || !group.comm) return nccl::kSuccess;
  if (group.end->trouble == NcclTrouble::refused_group) return kInternalError;
  group.comm->polls_left = 2;
  group.comm->has_launched = true;
  ++num_groups;
  group.lane->put([mine = group]() mutable { return carry_out(mine); });
  return nccl::kInProgress;
}

int ask(Comm comm, int* state) {
  if (!comm) return kInternalError;
  *state = comm->polls_left > 0 ? nccl::kInProgress : nccl::kSuccess;
  comm->polls_left = std::max(comm->polls_left - 1, 0);
  if (comm->end->trouble == NcclTrouble::lost_group && comm->has_launched && comm->polls_before_loss-- <= 0)
    *state = kInternalError;
  return nccl::kSuccess;
}

int destroy(Comm comm) {
  comm->end->is_aborted = true;
  delete comm;
  return nccl::kSuccess;
}

}  // namespace

nccl::UniqueId NcclOfThreadsId::pack() const {
  nccl::UniqueId id{};
  static_assert(sizeof(*this) <= sizeof(id.bytes));
  std::memcpy(id.bytes, this, sizeof(*this));
  return id;
}

std::shared_ptr<device::NcclNetwork> make_nccl_of_threads(const World& world, device::Lane& lane,
                                                          const NcclOfThreadsId& id) {
  const std::size_t batch_bytes = lane.buffer_bytes();
  return std::make_shared<device::NcclNetwork>(
      nccl_of_threads(), nccl::Communicator::Place{world.rank(), world.size(), id.pack()},
      lane.allocate(device::NcclNetwork::memory_bytes(world.size(), batch_bytes)), batch_bytes, [] {});
}

std::uint64_t num_nccl_groups() { return num_groups; }

int num_open_nccl_groups() { return num_open_groups; }

const nccl::Library& nccl_of_threads() {
  static const nccl::Library library{
      .GetVersion = nullptr,
      .GetUniqueId = [](nccl::UniqueId* id) -> int {
        static std::atomic<std::uint64_t> next{std::uint64_t{1} << 40};
        *id = NcclOfThreadsId{.number = next++}.pack();
        return nccl::kSuccess;
      },
      .CommInitRankConfig = [](Comm* comm, int, nccl::UniqueId packed, int rank, nccl::Config*) -> int {
        NcclOfThreadsId id;
        std::memcpy(&id, packed.bytes, sizeof(id));
        *comm = new nccl::OpaqueComm{
            std::make_shared<End>(id.number, rank, rank == id.troubled_rank ? id.trouble : NcclTrouble::none)};
        return nccl::kInProgress;
      },
      .CommAbort = destroy,
      .CommGetAsyncError = ask,
      .GroupStart = []() -> int {
        if (num_open_groups++ == 0) group = {};
        return nccl::kSuccess;
      },
      .GroupEnd = end_group,
      .Send = [](const void* from, std::size_t bytes, int, int peer, Comm comm, cudaStream_t stream) -> int {
        if (comm->end->trouble == NcclTrouble::refused_send) return kInternalError;
        add(group.sends, from, bytes, peer, comm, stream);
        return nccl::kSuccess;
      },
      .Recv = [](void* to, std::size_t bytes, int, int peer, Comm comm, cudaStream_t stream) -> int {
        add(group.receives, to, bytes, peer, comm, stream);
        return nccl::kSuccess;
      },
      .GetErrorString = [](int) { return "trouble"; }};
  return library;
}

}  // namespace shunt::test
