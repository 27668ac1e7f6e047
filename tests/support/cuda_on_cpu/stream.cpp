#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "errors.hpp"

namespace cuda_on_cpu {
namespace {

/// Never destroyed: threads of streams run to the end of the process.
struct Streams {
  std::mutex mutex;  // guards `queues` and `null_streams`
  std::vector<std::weak_ptr<Queue>> queues;
  std::unordered_map<int, std::unique_ptr<CUstream_st>> null_streams;

  std::mutex captures;
  std::vector<std::weak_ptr<Capture>> global_captures;
  unsigned long long num_captures = 0;
};
Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

// Each thread has its own.
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local std::vector<std::weak_ptr<Capture>> own_captures;

/// Whether one of these goes on. Forgets those that have ended.
bool break_any(std::vector<std::weak_ptr<Capture>>& captures) {
  bool any = false;
  std::erase_if(captures, [&](const std::weak_ptr<Capture>& each) {
    const auto capture = each.lock();
    if (capture) any = capture->is_invalid = true;
    return !capture;
  });
  return any;
}

/// Legacy behaviour of the null stream: it waits for streams that were not made non-blocking, and they for it.
void keep_order_with_null_stream(CUstream_st& stream) {
  const bool is_null = &stream == &resolve(nullptr);
  if (!is_null && !stream.queue->waits_for_null_stream()) return;
  const auto after = [&](Queue& queue) {
    if (&queue != stream.queue.get() && !queue.is_idle()) stream.queue->wait_for(queue.mark());
  };
  if (!is_null) return after(*resolve(nullptr).queue);
  for (const auto& queue : all_queues())
    if (queue->waits_for_null_stream() && queue->device() == stream.queue->device()) after(*queue);
}

}  // namespace

void Completion::finish() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  time_ns_ =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  changed_.notify_all();
}
void Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}
bool Completion::is_done() {
  const std::lock_guard lock(mutex_);
  return done_;
}
std::uint64_t Completion::time_ns() {
  const std::lock_guard lock(mutex_);
  return time_ns_;
}

std::shared_ptr<Queue> Queue::make(int device, bool waits_for_null_stream) {
  auto queue = std::make_shared<Queue>(device, waits_for_null_stream);
  const std::lock_guard lock(streams().mutex);
  std::erase_if(streams().queues, [](const auto& each) { return each.expired(); });
  streams().queues.push_back(queue);
  queue->self_ = queue;
  return queue;
}

void Queue::push(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  ++num_pushed_;
  if (!has_thread_) std::thread([queue = self_] { queue->work(); }).detach();
  has_thread_ = true;
  changed_.notify_one();
}

std::shared_ptr<Completion> Queue::mark() {
  auto completion = std::make_shared<Completion>();
  push([completion] { completion->finish(); });
  return completion;
}

void Queue::wait_for(std::shared_ptr<Completion> completion) {
  if (completion->is_done()) return;
  push([completion = std::move(completion)] { completion->wait(); });
}

bool Queue::is_idle() {
  const std::lock_guard lock(mutex_);
  return num_done_ == num_pushed_;
}

void Queue::finish() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&, end = num_pushed_] { return num_done_ >= end; });
}

void Queue::close() {
  std::shared_ptr<Queue> keep;  // until the lock is given back
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  keep = std::move(self_);
  changed_.notify_one();
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closed_ || !work_.empty(); });
    if (work_.empty()) return;
    {
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
    }
    lock.lock();
    ++num_done_;
    done_.notify_all();
  }
}

std::vector<std::shared_ptr<Queue>> all_queues() {
  const std::lock_guard lock(streams().mutex);
  std::vector<std::shared_ptr<Queue>> queues;
  for (const auto& each : streams().queues)
    if (auto queue = each.lock()) queues.push_back(std::move(queue));
  return queues;
}

std::mutex& capture_mutex() { return streams().captures; }

CUstream_st& resolve(cudaStream_t stream) {
  if (stream && stream != cudaStreamLegacy) return *stream;
  const int device = current_device();
  {
    const std::lock_guard lock(streams().mutex);
    if (const auto found = streams().null_streams.find(device); found != streams().null_streams.end())
      return *found->second;
  }
  auto made = std::make_unique<CUstream_st>(CUstream_st{Queue::make(device, false)});
  const std::lock_guard lock(streams().mutex);
  return *streams().null_streams.try_emplace(device, std::move(made)).first->second;
}

std::shared_mutex& submission_mutex() {
  static auto* const mutex = new std::shared_mutex;
  return *mutex;
}

cudaError_t submit(cudaStream_t handle, Operation operation) {
  CUstream_st& stream = resolve(handle);
  {
    const std::lock_guard lock(capture_mutex());
    if (const auto& capture = stream.capture) {
      if (capture->is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
      capture->operations.push_back(std::move(operation));
      ++capture->branches[&stream].recorded;
      return cudaSuccess;
    }
  }
  const std::shared_lock lock(submission_mutex());
  keep_order_with_null_stream(stream);
  stream.queue->push(std::move(operation.run));
  return cudaSuccess;
}

cudaError_t check_unsafe_call() {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(capture_mutex());
  bool breaks = break_any(own_captures);
  if (capture_mode == cudaStreamCaptureModeGlobal) breaks = break_any(streams().global_captures) || breaks;
  return breaks ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t check_not_captured(CUstream_st& stream) {
  const std::lock_guard lock(capture_mutex());
  if (!stream.capture) return cudaSuccess;
  stream.capture->is_invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  *stream = new CUstream_st{Queue::make(current_device(), (flags & cudaStreamNonBlocking) == 0), flags};
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  stream->queue->close();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  *flags = resolve(stream).flags;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = resolve(stream).queue->device();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  CUstream_st& stream = resolve(handle);
  if (const cudaError_t status = check_not_captured(stream); status != cudaSuccess) return status;
  keep_order_with_null_stream(stream);
  stream.queue->finish();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  CUstream_st& stream = resolve(handle);
  if (const cudaError_t status = check_not_captured(stream); status != cudaSuccess) return status;
  return stream.queue->is_idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return submit(stream, {[=] { function(data); }, cudaGraphNodeTypeHost});
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (!handle || handle == cudaStreamLegacy) return fail(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(capture_mutex());
  if (handle->capture) return fail(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->id = ++streams().num_captures;
  capture->origin = handle;
  capture->mode = mode;
  capture->branches[handle];
  handle->capture = capture;
  if (mode != cudaStreamCaptureModeRelaxed) own_captures.push_back(capture);
  if (mode == cudaStreamCaptureModeGlobal) streams().global_captures.push_back(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* num_dependencies) {
  if (graph || dependencies || edges || num_dependencies) return fail(cudaErrorNotSupported);
  CUstream_st& stream = resolve(handle);
  const std::lock_guard lock(capture_mutex());
  *status = !stream.capture              ? cudaStreamCaptureStatusNone
            : stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  if (id && stream.capture) *id = stream.capture->id;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(capture_mode, *mode);
  return cudaSuccess;
}

}  // extern "C"
