#include "shunt/world.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/all_reduce.hpp"
#include "engine/exchange.hpp"
#include "engine/pending_operation.hpp"
#include "engine/world_impl.hpp"

namespace shunt {

std::string_view to_string(WorldKind kind) {
  switch (kind) {
    case WorldKind::inproc: return "inproc";
    case WorldKind::shm: return "shm";
    case WorldKind::islands: return "islands";
  }
  return "unknown";
}

void CommContext::report_and_throw(const PeerError& error) const {
  transport_->report(error.code(), error.culprit(), error.what());
  throw error;
}

Block CommContext::allocate(std::size_t bytes) {
  Block block = transport_->allocate(bytes);
  block.owner = std::shared_ptr<const void>(
      block.data, [inner = std::move(block.owner), state = progress_.server_state()](const void*) mutable {
        inner.reset();
        state->schedule_trim();
      });
  return block;
}

void CommContext::retire(std::shared_ptr<void> heap) {
  const std::lock_guard lock(retired_mutex_);
  retired_.push_back(std::move(heap));
}

void CommContext::free_retired() {
  std::vector<std::shared_ptr<void>> freed;
  const std::lock_guard lock(retired_mutex_);
  freed.swap(retired_);
}

std::shared_ptr<World::Impl> make_world(Joined joined, const Environment& environment) {
  auto& [transport, topology, rebuilder] = joined;
  auto group = std::make_shared<Group>();
  for (std::int32_t rank = 0; rank < transport->size(); ++rank) {
    group->members.emplace_back(rank);
    group->wiring.add(transport->host(RankId(rank)), transport->nic(RankId(rank)));
  }
  group->self = transport->rank();
  auto comm = std::make_shared<CommContext>(std::move(transport), environment);
  return std::make_shared<World::Impl>(World::Impl{.comm = std::move(comm),
                                                   .group = std::move(group),
                                                   .topology = std::move(topology),
                                                   .rebuilder = std::move(rebuilder)});
}

World World::create(Bootstrap& bootstrap, const WorldOptions& options) {
  Joined joined = join(bootstrap, options.environment, options.topology);
  return World(make_world(std::move(joined), checked(options.environment)));
}

World World::from_environment() {
  const Environment environment = Environment::read();
  return create(*Bootstrap::from_environment(environment), {.environment = environment});
}

World::World(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)), exceptions_at_construction_(std::uncaught_exceptions()) {}
World::World(World&&) noexcept = default;

World& World::operator=(World&& other) noexcept {
  std::swap(impl_, other.impl_);
  std::swap(exceptions_at_construction_, other.exceptions_at_construction_);
  return *this;
}

World::~World() {
  if (impl_ && std::uncaught_exceptions() > exceptions_at_construction_) {
    Transport& transport = impl_->comm->transport();
    transport.report(ErrorCode::peer_failed, transport.rank(),
                     fmt::format("rank {} left the world because of an exception", transport.rank()));
  }
}

RankId World::rank() const { return impl_->group->self; }
std::int32_t World::size() const { return impl_->group->size(); }
const Topology& World::topology() const { return impl_->topology; }
std::size_t World::committed_bytes() const { return impl_->comm->transport().committed_bytes(); }
std::size_t World::live_bytes() const { return impl_->comm->transport().live_bytes(); }

std::uint64_t World::bytes_sent_to_hosts() const { return impl_->comm->progress().num_bytes_sent(); }

Tensor World::allocate(DType dtype, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 56;
  if (rows < 0 || cols < 0 || (rows > 0 && cols > kMostBytes / 4 / rows))
    fail(ErrorCode::invalid_argument, "rank {}: can't allocate [{}, {}]", rank(), rows, cols);
  Tensor tensor{nullptr, dtype, rows, cols, nullptr};
  const Block block = impl_->comm->allocate(tensor.bytes());
  tensor.data = block.data;
  tensor.owner = block.owner;
  return tensor;
}

namespace {

std::vector<std::vector<std::byte>> gather(World::Impl& world, OpKind kind, std::span<const std::byte> mine,
                                           std::size_t most_bytes) {
  const auto deadline = world.comm->environment().deadline;
  return gather({*world.comm, world.group, world.topology, world.group->id, world.next_sequence, deadline}, kind, mine,
                {mine.size(), most_bytes});
}

}  // namespace

void World::barrier() { gather(*impl_, OpKind::barrier, {}, 0); }

std::vector<std::vector<std::byte>> World::all_gather(std::span<const std::byte> mine) {
  if (mine.size() > kMostExchangedBytes)
    fail(ErrorCode::invalid_argument, "rank {}: all_gather of {} bytes, at most {} are allowed", rank(), mine.size(),
         kMostExchangedBytes);
  return gather(*impl_, OpKind::all_gather, mine, kMostExchangedBytes);
}

Ticket<Tensor> World::all_reduce(const Tensor& tensor) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorCode::invalid_argument, "rank {}: all_reduce: the tensor {}", rank(), why);
  };
  if (tensor.dtype != f32) refuse(fmt::format("is {}, expected f32", to_string(tensor.dtype)));
  if (!tensor.memory.is_host()) refuse("lies on a device, expected host memory");
  if (!tensor.is_contiguous()) refuse("has gaps between its rows");
  if (tensor.bytes() > 0 && !tensor.data) refuse("has no data");
  CommContext& comm = *impl_->comm;
  Block block{tensor.data, tensor.bytes(), tensor.owner};
  if (tensor.bytes() > 0 && !comm.transport().offset_of(tensor.data, tensor.bytes())) {
    block = comm.allocate(tensor.bytes());
    std::memcpy(block.data, tensor.data, tensor.bytes());
  }
  const auto operation = std::make_shared<AllReduce>(comm.transport(), impl_->group, impl_->topology, impl_->group->id,
                                                     comm.environment().deadline, tensor, std::move(block));
  auto pending = std::make_shared<PendingOperation>(impl_->comm, operation);
  comm.progress().issue(operation, impl_->next_sequence);
  return {std::move(pending), tensor};
}

World World::split(std::int32_t colour) {
  std::vector<RankId> chosen;  // as ranks of this world
  const auto colours = gather(*impl_, OpKind::split, std::as_bytes(std::span(&colour, 1)), sizeof(colour));
  for (std::size_t rank = 0; rank < colours.size(); ++rank) {
    std::int32_t theirs = 0;
    if (colours[rank].size() != sizeof(theirs))
      impl_->comm->report_and_throw(
          {impl_->group->member(RankId(rank)),
           fmt::format("rank {} brought {} bytes to split, not a colour", rank, colours[rank].size())});
    std::memcpy(&theirs, colours[rank].data(), sizeof(theirs));
    if (theirs == colour) chosen.emplace_back(rank);
  }
  auto group = std::make_shared<Group>();
  for (const RankId rank : chosen) {
    if (rank == impl_->group->self) group->self = RankId(group->members.size());
    group->members.push_back(impl_->group->members[rank.index()]);
    group->wiring.add(impl_->group->wiring.hosts[rank.index()], impl_->group->wiring.nics[rank.index()]);
  }
  group->id = Hasher().add(impl_->group->id, impl_->num_splits++, colour).value();
  return World(std::make_shared<Impl>(
      Impl{.comm = impl_->comm, .group = std::move(group), .topology = impl_->topology.subset(chosen)}));
}

Rebuilt World::rebuild() {
  Transport& transport = impl_->comm->transport();
  if (impl_->group->size() != transport.size())
    fail(ErrorCode::invalid_argument, "rank {}: this world was split off; rebuild the one that it came from", rank());
  if (!transport.fault() && (impl_->rebuilder || size() == 1))
    fail(ErrorCode::invalid_argument, "rank {}: no rank is lost, so there is nothing to rebuild", rank());
  if (!impl_->rebuilder)
    fail(ErrorCode::unsupported, "rank {}: only worlds whose ranks are processes can be rebuilt", rank());
  auto [joined, survivors] = impl_->rebuilder->rebuild(transport, impl_->topology);
  return {World(make_world(std::move(joined), impl_->comm->environment())), std::move(survivors)};
}

}  // namespace shunt
