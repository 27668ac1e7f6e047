// The functions of NCCL that shunt calls, on emulated streams. A rank's end of a communicator is a datagram socket, so
// ranks may be threads or processes of one machine; they may share a device, too.
//
// NCCL_ON_CPU_TROUBLE=KIND:RANK lets things go wrong on one rank of communicators that are made afterwards:
//   send   ncclSend is refused
//   group  ncclGroupEnd is refused
//   lost   what a group has launched does not end before the communicator is aborted, and some polls later
//          ncclCommGetAsyncError reports an error
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/nccl/library.hpp"

namespace shunt::nccl {

/// Shared with what was launched, which may outlive the communicator.
struct End {
  ~End() { close(socket); }

  std::string id;
  int rank = 0;
  int size = 0;
  std::string trouble{};
  int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  std::atomic<bool> is_aborted{false};
  /// By rank. The first datagram of each is empty. Used by the host until all have come, then by what was launched.
  std::map<int, std::vector<std::byte>> received{};
};

struct OpaqueComm {
  std::shared_ptr<End> end;
  int num_greeted = 0;  // ranks that were sent the empty datagram
  bool has_joined = false;
  int polls_left = 0;  // until the last call has its effect
  int polls_before_loss = 4;
  bool has_launched = false;
};

namespace {

constexpr int kInternalError = 3;
constexpr std::size_t kMostBytes = 32 << 10;  // of a datagram

struct Transfer {
  std::byte* memory;
  std::size_t bytes;
  int peer;
};

struct Group {
  Comm comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Transfer> sends{}, receives{};
};
thread_local Group group;
thread_local int num_open_groups = 0;

/// Abstract: it ends with its socket.
struct Address {
  Address(const End& end, int rank) {
    name.sun_family = AF_UNIX;
    std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "nccl-on-cpu-%s-%d", end.id.c_str(), rank);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  sockaddr_un name{};
};

/// False if the peer is not there, or takes no more now.
bool send(const End& end, int peer, std::byte* memory, std::size_t bytes) {
  Address address(end, peer);
  int from = end.rank;
  std::array<iovec, 2> parts{iovec{&from, sizeof(from)}, iovec{memory, bytes}};
  msghdr message{};
  message.msg_name = &address.name;
  message.msg_namelen = sizeof(address.name);
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return sendmsg(end.socket, &message, 0) >= 0;
}

/// What moved, maybe nothing.
std::size_t send_some(const End& end, const Transfer& left) {
  const std::size_t bytes = std::min(left.bytes, kMostBytes);
  return send(end, left.peer, left.memory, bytes) ? bytes : 0;
}

void receive_all(End& end) {
  std::array<std::byte, sizeof(int) + kMostBytes> datagram;
  for (ssize_t bytes = 0; (bytes = recv(end.socket, datagram.data(), datagram.size(), 0)) > 0;) {
    int from = 0;
    std::memcpy(&from, datagram.data(), sizeof(from));
    end.received[from].insert(end.received[from].end(), datagram.data() + sizeof(from), datagram.data() + bytes);
  }
}

std::size_t take_some(End& end, const Transfer& left) {
  auto& here = end.received[left.peer];
  const std::size_t bytes = std::min(left.bytes, here.size());
  std::copy_n(here.begin(), bytes, left.memory);
  here.erase(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(bytes));
  return bytes;
}

/// Takes transfers further, those with one peer in their order; true if something moved.
template <class Some>
bool advance(std::vector<Transfer>& transfers, const Some& some) {
  bool moved = false;
  std::vector<int> waiting;
  for (Transfer& each : transfers) {
    if (std::ranges::count(waiting, each.peer) > 0) continue;
    const std::size_t bytes = some(each);
    each.memory += bytes;
    each.bytes -= bytes;
    moved |= bytes > 0;
    if (each.bytes > 0) waiting.push_back(each.peer);
  }
  std::erase_if(transfers, [](const Transfer& each) { return each.bytes == 0; });
  return moved;
}

struct Launched {
  std::shared_ptr<End> end;
  std::vector<Transfer> sends, receives;

  void run() {
    while (!end->is_aborted && (end->trouble == "lost" || !sends.empty() || !receives.empty())) {
      bool moved =
          end->trouble != "lost" && advance(sends, [&](const Transfer& left) { return send_some(*end, left); });
      receive_all(*end);
      moved |= end->trouble != "lost" && advance(receives, [&](const Transfer& left) { return take_some(*end, left); });
      if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

int add(std::vector<Transfer>& transfers, const void* memory, std::size_t bytes, int peer, Comm comm,
        cudaStream_t stream) {
  transfers.push_back({static_cast<std::byte*>(const_cast<void*>(memory)), bytes, peer});
  group.comm = comm;
  group.stream = stream;
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 21400;
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> number{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::snprintf(id->bytes, sizeof(id->bytes), "%d-%d-%llx", getpid(), ++number, static_cast<unsigned long long>(now));
  return kSuccess;
}

int ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config*) {
  auto end = std::make_shared<End>();
  end->id = id.bytes;
  end->rank = rank;
  end->size = size;
  const char* const trouble = std::getenv("NCCL_ON_CPU_TROUBLE");
  std::array<char, 16> kind{};
  int troubled = -1;
  if (trouble && std::sscanf(trouble, "%15[^:]:%d", kind.data(), &troubled) == 2 && troubled == rank)
    end->trouble = kind.data();
  if (bind(end->socket, Address(*end, rank).get(), sizeof(sockaddr_un)) != 0) return kInternalError;
  *comm = new OpaqueComm{std::move(end)};
  return kInProgress;
}

int ncclCommAbort(Comm comm) {
  comm->end->is_aborted = true;
  delete comm;
  return kSuccess;
}

int ncclCommGetAsyncError(Comm comm, int* state) {
  if (!comm) return kInternalError;
  End& end = *comm->end;
  if (!comm->has_joined) {
    while (comm->num_greeted < end.size && send(end, comm->num_greeted, nullptr, 0)) ++comm->num_greeted;
    receive_all(end);
    comm->has_joined = comm->num_greeted == end.size && static_cast<int>(end.received.size()) == end.size;
  }
  const bool is_busy = !comm->has_joined || comm->polls_left > 0;
  comm->polls_left = std::max(comm->polls_left - 1, 0);
  *state = is_busy ? kInProgress : kSuccess;
  if (end.trouble == "lost" && comm->has_launched && comm->polls_before_loss-- <= 0) *state = kInternalError;
  return kSuccess;
}

int ncclGroupStart() {
  if (num_open_groups++ == 0) group = {};
  return kSuccess;
}

int ncclGroupEnd() {
  if (--num_open_groups > 0 || !group.comm) return kSuccess;
  if (group.comm->end->trouble == "group") return kInternalError;
  group.comm->polls_left = 2;
  group.comm->has_launched = true;
  auto launched =
      std::make_unique<Launched>(Launched{group.comm->end, std::move(group.sends), std::move(group.receives)});
  const auto run = [](void* work) { std::unique_ptr<Launched>(static_cast<Launched*>(work))->run(); };
  if (cudaLaunchHostFunc(group.stream, run, launched.get()) != cudaSuccess) return kInternalError;
  (void)launched.release();  // the stream's
  return kInProgress;
}

int ncclSend(const void* from, std::size_t bytes, int, int peer, Comm comm, cudaStream_t stream) {
  if (comm->end->trouble == "send") return kInternalError;
  return add(group.sends, from, bytes, peer, comm, stream);
}

int ncclRecv(void* to, std::size_t bytes, int, int peer, Comm comm, cudaStream_t stream) {
  return add(group.receives, to, bytes, peer, comm, stream);
}

const char* ncclGetErrorString(int) { return "trouble"; }

}  // extern "C"
}  // namespace shunt::nccl
