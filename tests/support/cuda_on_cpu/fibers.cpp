#include "fibers.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "context.hpp"

namespace cuda_on_cpu {

[[gnu::tls_model("initial-exec")]] constinit thread_local Place place{};

namespace {

constexpr unsigned kWarp = 32;

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "CUDA on CPU: block (%u, %u, %u), thread (%u, %u, %u): %s\n", place.block.x, place.block.y,
               place.block.z, place.thread.x, place.thread.y, place.thread.z, why);
  std::abort();
}

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

/// What the threads of the system that run a grid share.
struct GridRun {
  explicit GridRun(const Grid& run) : grid(run) {}

  const Grid& grid;
  const std::uint64_t begin = now();
  std::atomic<std::uint64_t> next_block{0};
  std::mutex mutex;  // guards `helpers`
  std::vector<std::thread> helpers;

  void run_blocks();
  void add_helper() {
    constexpr std::size_t kMostHelpers = 64;
    const std::lock_guard lock(mutex);
    if (next_block.load() < grid.num_blocks() && helpers.size() < kMostHelpers)
      helpers.emplace_back([this] { run_blocks(); });
  }
};

/// A stack, and the CUDA thread that runs on it.
struct Fiber {
  Context context;
  void* stack = nullptr;
  Fiber* next = nullptr;  // in a list
  uint3 thread{};
  unsigned index = 0;  // of the thread in its block
  unsigned clock_reads = 0;
  std::uint64_t result = 0;  // of the warp operation that it waited in
};

/// First in, first out.
class FiberQueue {
 public:
  [[nodiscard]] bool empty() const { return !first_; }
  void push(Fiber* fiber) {
    fiber->next = nullptr;
    (first_ ? last_->next : first_) = fiber;
    last_ = fiber;
    ++size_;
  }
  Fiber* pop() {
    Fiber* const fiber = first_;
    first_ = fiber->next;
    --size_;
    return fiber;
  }
  /// Appends all of `others`.
  void take(FiberQueue& others) {
    if (others.empty()) return;
    (first_ ? last_->next : first_) = others.first_;
    last_ = others.last_;
    size_ += others.size_;
    others = {};
  }
  [[nodiscard]] unsigned size() const { return size_; }

 private:
  Fiber* first_ = nullptr;
  Fiber* last_ = nullptr;
  unsigned size_ = 0;
};

void run_threads_forever();

/// The idle fibers of a thread of the system. The one used last is taken first, as its stack is in the cache.
class FiberPool {
 public:
  FiberPool() = default;
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool() {
    while (idle_) {
      Fiber* const fiber = std::exchange(idle_, idle_->next);
      void* const stack = fiber->stack;
      delete fiber;
      munmap(stack, kStackBytes);
    }
  }

  Fiber* take() {
    if (idle_) return std::exchange(idle_, idle_->next);
    auto fiber = std::make_unique<Fiber>();
    void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) die("no memory for a stack");
    (void)mprotect(stack, kGuardBytes, PROT_NONE);
    fiber->stack = stack;
    // Tops of stacks at the same place of a page would share few lines of the first cache.
    const std::size_t shift = made_++ * 192 % 4096;
    fiber->context.start(static_cast<std::byte*>(stack) + kGuardBytes, kStackBytes - kGuardBytes - shift,
                         run_threads_forever);
    return fiber.release();
  }
  void give_back(Fiber* fiber) {
    fiber->next = idle_;
    idle_ = fiber;
  }

 private:
  static constexpr std::size_t kStackBytes = 160 << 10;  // of address space; few pages are used
  static constexpr std::size_t kGuardBytes = 4 << 10;

  Fiber* idle_ = nullptr;
  std::size_t made_ = 0;
};

struct Warp {
  enum class Operation : std::uint8_t { exchange, ballot };
  struct Lane {
    Fiber* fiber;
    std::uint64_t value;
    std::uint32_t mask;
    Operation operation;
    std::uint8_t source;
  };

  std::uint32_t live = 0;     // lanes whose thread has not ended
  std::uint32_t arrived = 0;  // lanes that wait in a warp operation
  Lane lanes[kWarp];
};

/// What the blocks on a thread of the system use one after the other.
struct Workspace {
  FiberPool pool;
  std::vector<std::byte> shared;
  std::vector<Warp> warps;
};

/// One block on one thread of the system.
class Block {
 public:
  Block(GridRun& run, Workspace& workspace)
      : run_(run),
        grid_(run.grid),
        pool_(workspace.pool),
        warps_(workspace.warps),
        num_threads_(grid_.num_threads()),
        live_(num_threads_) {
    constexpr std::size_t kAlignment = 128;
    // What the block before left there shall not look like something that this one wrote.
    std::vector<std::byte>& shared = workspace.shared;
    shared.assign(grid_.shared_bytes + kAlignment, std::byte{0xa5});
    const auto address = reinterpret_cast<std::uintptr_t>(shared.data());
    shared_ = shared.data() + (kAlignment - address % kAlignment) % kAlignment;
    const unsigned num_warps = (num_threads_ + kWarp - 1) / kWarp;
    if (warps_.size() < num_warps) warps_.resize(num_warps);
    for (unsigned warp = 0; warp < num_warps; ++warp) {
      const unsigned lanes = std::min(num_threads_ - warp * kWarp, kWarp);
      warps_[warp].live = ~0u >> (kWarp - lanes);
      warps_[warp].arrived = 0;
    }
  }

  void run_all() {
    current_ = pool_.take();
    Context::switch_to(outside_, current_->context);
  }

  /// What fibers do: run threads that have not begun, until there are none.
  void run_threads() {
    while (next_thread_ < num_threads_ && ready_.empty()) {
      begin_thread(next_thread_++);
      grid_.body();
      end_thread();
    }
    pool_.give_back(current_);
    if (live_ == 0) return leave_to(outside_);
    Fiber* const next = next_fiber();
    if (!next) die("the threads of a block wait for each other at different barriers");
    Fiber* const before = current_;
    current_ = next;
    Context::switch_to(before->context, next->context);
    // Taken again, for this block or for a later one.
  }

  [[nodiscard]] void* shared() const { return shared_; }

  Votes barrier(bool vote) {
    votes_ += vote;
    if (at_barrier_.size() + 1 == live_) {
      release_barrier(1);
    } else {
      at_barrier_.push(current_);
      wait();
    }
    return result_;
  }

  std::uint64_t in_warp(Warp::Operation operation, std::uint32_t mask, std::uint64_t value, unsigned source) {
    Warp& warp = warps_[current_->index / kWarp];
    const unsigned lane = current_->index % kWarp;
    warp.lanes[lane] = {current_, value, mask, operation, static_cast<std::uint8_t>(source)};
    warp.arrived |= 1u << lane;
    if (!complete(warp, mask, current_)) wait();
    return current_->result;
  }

  std::uint64_t read_clock() {
    const unsigned reads = current_->clock_reads++;
    if (reads == 0) return run_.begin;
    if (reads > 1) let_others_run();
    if (polls_++ % kPollsPerReading == 0) time_ = now();
    return time_;
  }

 private:
  void begin_thread(unsigned index) {
    const dim3& size = grid_.threads;
    current_->index = index;
    current_->thread = {index % size.x, index / size.x % size.y, index / (size.x * size.y)};
    current_->clock_reads = 0;
    place.thread = current_->thread;
  }

  void end_thread() {
    --live_;
    yields_ = stalls_ = 0;
    Warp& warp = warps_[current_->index / kWarp];
    warp.live &= ~(1u << current_->index % kWarp);
    // Threads that have ended are waited for no more.
    if (live_ > 0 && at_barrier_.size() == live_) release_barrier(0);
    for (std::uint32_t left = warp.arrived; left != 0; left = (left & (left - 1)) & warp.arrived)
      (void)complete(warp, warp.lanes[__builtin_ctz(left)].mask, nullptr);
  }

  void release_barrier(unsigned callers) {
    result_ = {at_barrier_.size() + callers, std::exchange(votes_, 0)};
    yields_ = stalls_ = 0;
    ready_.take(at_barrier_);
  }

  /// Gives lanes their results if all that the mask names have come. `caller` is one of them and runs on.
  bool complete(Warp& warp, std::uint32_t mask, const Fiber* caller) {
    const std::uint32_t members = mask & warp.live;
    if ((warp.arrived & members) != members) return false;
    for (std::uint32_t left = members; left != 0; left &= left - 1)
      if (warp.lanes[__builtin_ctz(left)].mask != mask) return false;
    std::uint32_t in_favour = 0;
    for (std::uint32_t left = members; left != 0; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      if (warp.lanes[lane].value != 0) in_favour |= 1u << lane;
    }
    for (std::uint32_t left = members; left != 0; left &= left - 1) {
      const Warp::Lane& lane = warp.lanes[__builtin_ctz(left)];
      const bool has_source = lane.source < kWarp && (members >> lane.source & 1) != 0;
      lane.fiber->result = lane.operation == Warp::Operation::ballot
                               ? in_favour
                               : (has_source ? warp.lanes[lane.source].value : lane.value);
      if (lane.fiber != caller) ready_.push(lane.fiber);
    }
    warp.arrived &= ~members;
    yields_ = stalls_ = 0;
    return members != 0;
  }

  Fiber* next_fiber() {
    if (!ready_.empty()) return ready_.pop();
    if (next_thread_ < num_threads_) return pool_.take();
    ready_.take(polling_);
    return ready_.empty() ? nullptr : ready_.pop();
  }

  /// Until another thread has put this one among those that are ready.
  void wait() {
    Fiber* const next = next_fiber();
    if (!next) die("waits for threads that wait for something else");
    go_on_with(next);
  }
  void go_on_with(Fiber* next) {
    Fiber* const self = current_;
    current_ = next;
    Context::switch_to(self->context, next->context);
    place.thread = self->thread;
  }
  void leave_to(Context& context) {
    Fiber* const self = current_;
    current_ = nullptr;
    Context::switch_to(self->context, context);
  }

  void let_others_run() {
    if (next_thread_ < num_threads_) {
      polling_.push(current_);
      return go_on_with(pool_.take());
    }
    ready_.take(polling_);
    if (++yields_ > ready_.size()) stall();
    if (ready_.empty()) return;
    ready_.push(current_);
    go_on_with(ready_.pop());
  }

  /// All threads wait for something outside of the block. Many of them take long to find out that it has come, and
  /// should not take the processor from those that bring it about.
  void stall() {
    constexpr int kBeforeSleeping = 16;
    constexpr int kBeforeHelp = 32;
    constexpr unsigned kFewThreads = 64;
    yields_ = 0;
    polls_ = 0;
    if (++stalls_ < kBeforeSleeping && ready_.size() < kFewThreads)
      sched_yield();
    else
      usleep(20 + ready_.size() / 8);
    if (stalls_ % kBeforeHelp == 0) run_.add_helper();
  }

  GridRun& run_;
  const Grid& grid_;
  FiberPool& pool_;
  std::vector<Warp>& warps_;
  void* shared_ = nullptr;
  unsigned num_threads_;
  unsigned live_;  // threads that have not ended
  unsigned next_thread_ = 0;
  Fiber* current_ = nullptr;
  FiberQueue ready_;
  FiberQueue polling_;  // threads that wait for something while others have not begun, which go first
  FiberQueue at_barrier_;
  unsigned votes_ = 0;
  Votes result_{};       // of the last barrier; each reads it before the next can be complete
  unsigned yields_ = 0;  // since a thread got on
  int stalls_ = 0;
  static constexpr unsigned kPollsPerReading = 16;  // of the clock, which takes longer than a switch
  unsigned polls_ = 0;
  std::uint64_t time_ = 0;
  Context outside_;
};

[[gnu::tls_model("initial-exec")]] constinit thread_local Block* current_block = nullptr;

void run_threads_forever() {
  for (;;) current_block->run_threads();
}

void GridRun::run_blocks() {
  thread_local Workspace workspace;
  const auto as_uint3 = [](const dim3& size) { return uint3{size.x, size.y, size.z}; };
  for (std::uint64_t i; (i = next_block.fetch_add(1)) < grid.num_blocks();) {
    place = {
        .thread = {},
        .block = {static_cast<unsigned>(i % grid.blocks.x), static_cast<unsigned>(i / grid.blocks.x % grid.blocks.y),
                  static_cast<unsigned>(i / grid.blocks.x / grid.blocks.y)},
        .threads = as_uint3(grid.threads),
        .blocks = as_uint3(grid.blocks)};
    Block block(*this, workspace);
    current_block = &block;
    block.run_all();
    current_block = nullptr;
  }
}

}  // namespace

void run(const Grid& grid) {
  GridRun run(grid);
  run.run_blocks();
  // A helper may add one more, as long as blocks are left.
  for (std::size_t i = 0;; ++i) {
    std::unique_lock lock(run.mutex);
    if (i == run.helpers.size()) return;
    std::thread helper = std::move(run.helpers[i]);
    lock.unlock();
    helper.join();
  }
}

void* dynamic_shared_memory() { return current_block->shared(); }
Votes barrier(bool vote) { return current_block->barrier(vote); }
std::uint64_t exchange(std::uint32_t mask, std::uint64_t value, unsigned source) {
  return current_block->in_warp(Warp::Operation::exchange, mask, value, source);
}
std::uint32_t ballot(std::uint32_t mask, bool vote) {
  return static_cast<std::uint32_t>(current_block->in_warp(Warp::Operation::ballot, mask, vote, 0));
}
std::uint64_t nanoseconds() { return current_block->read_clock(); }

}  // namespace cuda_on_cpu
