// A rank that dies when another of its host has come to meet it. Stands before the system's function of this name.
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

namespace {

bool is_doomed() {
  const char* const rank = std::getenv("RANK");
  const char* const doomed = std::getenv("HOSTS_RANK_ENDS_IN_ITS_HOST");
  return rank && doomed && std::string_view(rank) == doomed;
}

bool is_within_host(int listener) {
  int family = 0;
  socklen_t bytes = sizeof(family);
  return getsockopt(listener, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

}  // namespace

extern "C" int accept4(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  const auto accepted = static_cast<int>(syscall(SYS_accept4, listener, address, bytes, flags));
  if (accepted >= 0 && is_doomed() && is_within_host(listener)) (void)raise(SIGKILL);
  return accepted;
}
