// Work of a stream, captured once and replayed.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace shunt::cli {

class Graph {
 public:
  /// Captures what `work` puts on the stream.
  template <class Work>
  Graph(cudaStream_t stream, const Work& work) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    device::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    work();
    device::check(cudaStreamEndCapture(stream, &graph), "capture");
    device::check(cudaGraphInstantiate(&graph_, graph, 0), "make a graph");
    (void)cudaGraphDestroy(graph);
    device::check(cudaGraphUpload(graph_, stream), "upload a graph");
    device::check(cudaStreamSynchronize(stream), "upload a graph");
  }
  ~Graph() { (void)cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay() const { device::check(cudaGraphLaunch(graph_, stream_), "replay a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace shunt::cli
