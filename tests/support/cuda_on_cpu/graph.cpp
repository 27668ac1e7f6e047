// Events and graphs.
#include <algorithm>

#include "errors.hpp"
#include "stream.hpp"

using namespace cuda_on_cpu;

/// What it stands for is replaced each time it is recorded.
struct CUevent_st {
  std::mutex mutex{};
  std::shared_ptr<Completion> last{};  // null before it was recorded outside of captures
  std::weak_ptr<Capture> capture{};    // where it was recorded last, if in one
  bool is_captured = false;
  CUstream_st* stream = nullptr;  // in the capture
  std::size_t position = 0;       // in what the stream has recorded there
};

struct CUgraphNode_st {
  Operation operation;
};
/// Its nodes stand in the order in which they were captured, which all dependencies follow.
struct CUgraph_st {
  std::shared_ptr<std::vector<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<CUgraphNode_st>> nodes;
};

CUresult cuda_on_cpu::graph_kernel_node_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* kernel) {
  if (node->operation.type != cudaGraphNodeTypeKernel) return CUDA_ERROR_INVALID_VALUE;
  const dim3 blocks = node->operation.blocks;
  *kernel = {};
  kernel->gridDimX = blocks.x;
  kernel->gridDimY = blocks.y;
  kernel->gridDimZ = blocks.z;
  return CUDA_SUCCESS;
}

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t status = check_process(); status != cudaSuccess) return status;
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return fail(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  CUstream_st& stream = resolve(handle);
  {
    const std::scoped_lock lock(capture_mutex(), event->mutex);
    if (const auto& capture = stream.capture) {
      if (capture->is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
      event->capture = capture;
      event->is_captured = true;
      event->stream = &stream;
      event->position = capture->branches[&stream].recorded;
      return cudaSuccess;
    }
  }
  const auto completion = std::make_shared<Completion>();
  const cudaError_t status = submit(handle, {[completion] { completion->finish(); }});
  const std::lock_guard lock(event->mutex);
  event->last = completion;
  event->is_captured = false;
  return status;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  CUstream_st& stream = resolve(handle);
  std::shared_ptr<Completion> completion;
  {
    const std::scoped_lock lock(capture_mutex(), event->mutex);
    if (event->is_captured) {
      const auto capture = event->capture.lock();
      if (!capture) return fail(cudaErrorCapturedEvent);
      if (capture->is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
      if (stream.capture && stream.capture != capture) {
        capture->is_invalid = stream.capture->is_invalid = true;
        return fail(cudaErrorStreamCaptureMerge);
      }
      stream.capture = capture;  // which the stream joins if it is not in it yet
      capture->branches[&stream];
      Capture::Branch& branch = capture->branches[event->stream];
      if (event->stream != &stream) branch.joined = std::max(branch.joined, event->position);
      return cudaSuccess;
    }
    if (stream.capture && event->last) {
      stream.capture->is_invalid = true;
      return fail(cudaErrorStreamCaptureIsolation);
    }
    completion = event->last;
  }
  if (completion) stream.queue->wait_for(std::move(completion));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  if (event->is_captured) return fail(cudaErrorCapturedEvent);
  return !event->last || event->last->is_done() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::shared_ptr<Completion> completion;
  {
    const std::lock_guard lock(event->mutex);
    if (event->is_captured) return fail(cudaErrorCapturedEvent);
    completion = event->last;
  }
  if (completion) completion->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::scoped_lock lock(begin->mutex, end->mutex);
  if (!begin->last || !end->last) return fail(cudaErrorInvalidResourceHandle);
  if (!begin->last->is_done() || !end->last->is_done()) return cudaErrorNotReady;
  const auto time = static_cast<std::int64_t>(end->last->time_ns() - begin->last->time_ns());
  *milliseconds = static_cast<float>(static_cast<double>(time) * 1e-6);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::lock_guard lock(capture_mutex());
  if (!handle || !handle->capture) return fail(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = handle->capture;
  if (capture->origin != handle) return fail(cudaErrorStreamCaptureUnmatched);
  bool is_joined = true;
  for (const auto& [stream, branch] : capture->branches) {
    is_joined = is_joined && (stream == handle || branch.joined == branch.recorded);
    stream->capture = nullptr;
  }
  if (capture->is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!is_joined) return fail(cudaErrorStreamCaptureUnjoined);
  auto nodes = std::make_shared<std::vector<CUgraphNode_st>>();
  for (Operation& operation : capture->operations) nodes->push_back({std::move(operation)});
  *graph = new CUgraph_st{std::move(nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* num_nodes) {
  const std::size_t count = graph->nodes->size();
  if (nodes)
    for (std::size_t i = 0; i < std::min(*num_nodes, count); ++i) nodes[i] = &(*graph->nodes)[i];
  *num_nodes = count;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->operation.type;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) { return check_not_captured(resolve(stream)); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const auto run = [nodes = exec->nodes] {
    for (const CUgraphNode_st& node : *nodes) node.operation.run();
  };
  return submit(stream, {run, cudaGraphNodeTypeGraph});
}

}  // extern "C"
