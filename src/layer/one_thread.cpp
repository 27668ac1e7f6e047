#include "layer/one_thread.hpp"

#include <dlfcn.h>

namespace shunt {
namespace {

/// Looked up instead of linked, to get the OpenMP runtime that the process has loaded for the library.
struct OpenMp {
  using GetMaxThreads = int (*)();
  using SetNumThreads = void (*)(int);

  GetMaxThreads get_max_threads = reinterpret_cast<GetMaxThreads>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  SetNumThreads set_num_threads = reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));

  [[nodiscard]] bool is_there() const { return get_max_threads && set_num_threads; }
};

const OpenMp& open_mp() {
  static const OpenMp runtime;
  return runtime;
}

}  // namespace

OneThread::OneThread() : threads_before_(open_mp().is_there() ? open_mp().get_max_threads() : 1) {
  if (threads_before_ != 1) open_mp().set_num_threads(1);
}

OneThread::~OneThread() {
  if (threads_before_ != 1) open_mp().set_num_threads(threads_before_);
}

}  // namespace shunt
