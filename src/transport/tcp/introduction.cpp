#include "transport/tcp/introduction.hpp"

#include <sys/socket.h>

namespace shunt::tcp {

bool Introduction::say(const Greeting& greeting) const {
  return ::send(socket_.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting);
}

}  // namespace shunt::tcp
