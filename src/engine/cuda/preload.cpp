#include "engine/cuda/count_exchange.hpp"
#include "engine/cuda/library.hpp"
#include "engine/cuda/send_and_arrive.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/pack_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/scale_rows.hpp"
#include "kernels/cuda/zero_padding.hpp"
#include "plan/cuda/choose.hpp"
#include "plan/cuda/count.hpp"
#include "plan/cuda/place.hpp"
#include "plan/cuda/prune.hpp"
#include "plan/cuda/routing_view.hpp"
#include "transport/cuda/barrier.hpp"
#include "transport/cuda/regrouping.hpp"

namespace shunt::device {

void preload_kernels() {
  preload_barrier();
  preload_regrouping();
  preload_narrow();
  preload_choose();
  preload_count();
  preload_clamp();
  preload_count_exchange();
  preload_place();
  preload_prune();
  preload_copy_bytes();
  preload_copy_rows();
  preload_bulk_copy_rows();
  preload_quantise_rows();
  preload_zero_padding();
  preload_reduce_rows();
  preload_pipelined_reduce_rows();
  preload_scale_rows();
  preload_send_and_arrive();
  preload_dot_rows();
  preload_gather_rows();
  preload_pack_rows();
  preload_write_pointers();
}

}  // namespace shunt::device
