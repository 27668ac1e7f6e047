#include "shunt/error.hpp"

namespace shunt {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::mismatch: return "mismatch";
    case ErrorCode::peer_lost: return "peer_lost";
    case ErrorCode::peer_failed: return "peer_failed";
    case ErrorCode::deadline: return "deadline";
    case ErrorCode::minority: return "minority";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::system: return "system";
    case ErrorCode::internal: return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

}  // namespace shunt
