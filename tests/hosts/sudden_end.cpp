// A rank that dies when another of its host has said the first word to it. Stands before the system's recvmsg.
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

bool is_within_host(int socket) {
  int family = 0;
  socklen_t bytes = sizeof(family);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

}  // namespace

extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  const auto received = static_cast<ssize_t>(syscall(SYS_recvmsg, socket, message, flags));
  if (received > 0 && is_doomed() && is_within_host(socket)) (void)raise(SIGKILL);
  return received;
}
