// Work of a stream, captured once and replayed.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace shunt::device {

class CapturedGraph {
 public:
  /// Captures what `work` puts on the stream.
  template <class Work>
  CapturedGraph(cudaStream_t stream, const Work& work) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    work();
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&graph_, graph, 0), "make a graph");
    (void)cudaGraphDestroy(graph);
    check(cudaGraphUpload(graph_, stream), "upload a graph");
    check(cudaStreamSynchronize(stream), "upload a graph");
  }
  ~CapturedGraph() { (void)cudaGraphExecDestroy(graph_); }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void replay() const { check(cudaGraphLaunch(graph_, stream_), "replay a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace shunt::device
