// Keeps an OpenMP library on the calling thread.
#pragma once

namespace shunt {

/// Limits parallel regions of the calling thread to one thread during its lifetime: ranks share a machine's cores, and
/// each has one. OpenMP keeps the number per thread, so no other thread is affected, and the destructor restores this
/// thread's number. Does nothing without an OpenMP runtime in the process.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_before_;
};

}  // namespace shunt
