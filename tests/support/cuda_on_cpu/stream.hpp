// Streams, events, captures and graphs. Each stream has a queue, and a thread of the system that takes from it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace cuda_on_cpu {

/// A piece of work. Graphs run it as often as they are launched.
struct Operation {
  std::function<void()> run;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  dim3 blocks{};  ///< of a kernel
};

/// Something that happens once, in a stream.
class Completion {
 public:
  void finish();
  void wait();
  [[nodiscard]] bool is_done();
  [[nodiscard]] std::uint64_t time_ns();  ///< when it was done

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::uint64_t time_ns_ = 0;
};

/// The work of a stream. It outlives the stream until the work is done.
class Queue {
 public:
  Queue(int device, bool waits_for_null_stream) : device_(device), waits_for_null_stream_(waits_for_null_stream) {}
  /// A queue whose thread starts with its first work.
  static std::shared_ptr<Queue> make(int device, bool waits_for_null_stream);

  void push(std::function<void()> work);
  /// Done after all work that is in the queue now.
  std::shared_ptr<Completion> mark();
  void wait_for(std::shared_ptr<Completion> completion);
  /// Returns when all work that is in the queue now is done; if none came since, the queue is idle.
  void finish();
  [[nodiscard]] bool is_idle();
  void close();

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] bool waits_for_null_stream() const { return waits_for_null_stream_; }

 private:
  void work();

  const int device_;
  const bool waits_for_null_stream_;
  std::mutex mutex_;
  std::condition_variable changed_, done_;
  std::deque<std::function<void()>> work_;
  std::shared_ptr<Queue> self_;  // while its thread runs
  bool has_thread_ = false;
  std::uint64_t num_pushed_ = 0;
  std::uint64_t num_done_ = 0;
  bool is_closed_ = false;
};

/// All queues that have not ended.
std::vector<std::shared_ptr<Queue>> all_queues();

/// Work that is recorded instead of run. All members are guarded by capture_mutex().
struct Capture {
  unsigned long long id = 0;
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool is_invalid = false;
  std::vector<Operation> operations;
  /// How much each stream has recorded, and how much of that is waited for by another stream of the capture.
  struct Branch {
    std::size_t recorded = 0;
    std::size_t joined = 0;
  };
  std::unordered_map<CUstream_st*, Branch> branches;
};
std::mutex& capture_mutex();

/// Where calls for a stream go: the null stream of the current device for null.
CUstream_st& resolve(cudaStream_t stream);

/// The driver's cuGraphKernelNodeGetParams(): the numbers of blocks.
CUresult graph_kernel_node_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* kernel);

/// Held shared to put work on a stream, and exclusively to wait for the device.
std::shared_mutex& submission_mutex();

/// Puts work on the stream or, if that is captured, into the graph.
cudaError_t submit(cudaStream_t stream, Operation operation);

/// Whether this thread may call what would break a capture, such as allocating; the capture is broken if not.
cudaError_t check_unsafe_call();
/// The same for a call that waits for one stream.
cudaError_t check_not_captured(CUstream_st& stream);

int current_device();

}  // namespace cuda_on_cpu

struct CUstream_st {
  std::shared_ptr<cuda_on_cpu::Queue> queue;
  unsigned flags = 0;
  std::shared_ptr<cuda_on_cpu::Capture> capture{};  // guarded by capture_mutex()
};
