// Keeps an OpenMP library on the calling thread.
#pragma once

namespace shunt {

/// While it lives, parallel regions that this thread begins have one thread: ranks share a machine's cores, and each
/// has one. OpenMP keeps that number per thread, so no other thread of the process sees a change, and this one has its
/// own number back afterwards. Without an OpenMP runtime in the process it does nothing.
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
