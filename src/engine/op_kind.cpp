#include "engine/op_kind.hpp"

namespace shunt {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::plan: return "plan";
    case OpKind::dispatch: return "dispatch";
    case OpKind::combine: return "combine";
    case OpKind::dispatch_backward: return "dispatch_backward";
    case OpKind::combine_backward: return "combine_backward";
    case OpKind::join: return "join";
    case OpKind::barrier: return "barrier";
    case OpKind::all_gather: return "all_gather";
    case OpKind::split: return "split";
    case OpKind::leave_out: return "leave_out";
  }
  return "unknown operation";
}

}  // namespace shunt
