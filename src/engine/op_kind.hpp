// The kinds of collective operations. Ranks compare them before they access each other's memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shunt {

enum class OpKind : std::uint8_t {
  plan,
  dispatch,
  combine,
  dispatch_backward,
  combine_backward,
  join,
  barrier,
  all_gather,
  all_reduce,
  split,
  leave_out,
};

std::string_view to_string(OpKind kind);

/// An operation's name in errors: "dispatch" or, if the engine has a name, "dispatch of 'layer 4'".
std::string title_of(std::string_view operation, std::string_view engine_name);

}  // namespace shunt
