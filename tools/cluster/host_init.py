"""Process 1 of a host: makes its namespaces look like a separate machine, then starts and reaps its processes.

It ends when netcluster dies; the kernel then ends all other processes of the host.
"""
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import uuid

import messages

SYSCTL = pathlib.Path("/proc/sys/net/ipv4/conf/all")


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def become(name, folder):
    """/proc, the network and IPC are new already; this replaces other shared files and those that identify a machine."""
    socket.sethostname(name)
    mount("-t", "tmpfs", "-o", "mode=1777", "shm", "/dev/shm")
    mount("-t", "sysfs", "sysfs", "/sys")  # /sys/class/net lists the interfaces of the network it was mounted in
    mount("--bind", folder / "hosts", "/etc/hosts")
    boot_id = folder / f"{name}.boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    mount("--bind", boot_id, "/proc/sys/kernel/random/boot_id")
    # With several NICs on one bridge, each answers for its own address only, and replies may arrive at any of them.
    for setting, value in {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}.items():
        (SYSCTL / setting).write_text(str(value))
    # reno is permitted everywhere, and adapts faster than bbr when a link becomes slow.
    pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")


class Processes:
    def __init__(self, connection):
        self.connection = connection
        self.number_of = {}  # pid: netcluster's number of the process

    def start(self, number, command, environment, files):
        try:
            pid = os.posix_spawnp(command[0], command, {**os.environ, **environment}, setpgroup=0,
                                  setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two
                                  file_actions=[(os.POSIX_SPAWN_DUP2, file, i) for i, file in enumerate(files)])
            self.number_of[pid] = number
        except OSError as error:
            os.write(files[2], f"netcluster: {command[0]}: {error.strerror}\n".encode())
            self.report_end(number, 127)
        finally:
            for file in files:
                os.close(file)

    def signal(self, number, which):
        for pid in [pid for pid, known in self.number_of.items() if number in (None, known)]:
            try:
                os.killpg(pid, which)
            except ProcessLookupError:
                pass

    def reap(self):
        """Reaps children, and orphans, which process 1 inherits."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if (number := self.number_of.pop(ended[0], None)) is not None:
                    code = os.waitstatus_to_exitcode(ended[1])
                    self.report_end(number, code if code >= 0 else 128 - code)
        except ChildProcessError:
            pass

    def report_end(self, number, status):
        messages.send(self.connection, {"number": number, "status": status})


def serve(connection):
    processes = Processes(connection)
    selector = selectors.DefaultSelector()
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector.register(wake, selectors.EVENT_READ)
    selector.register(connection, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in selector.select()}
        if wake in ready:
            os.read(wake, 4096)
            processes.reap()
        if connection in ready:
            message, files = messages.receive(connection)
            if message is None:
                return
            if "command" in message:
                processes.start(message["number"], message["command"], message["environment"], files)
            else:
                processes.signal(message["number"], message["signal"])


def main():
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    become(sys.argv[2], pathlib.Path(sys.argv[3]))
    try:
        messages.send(connection, {"ready": True})
        serve(connection)
    except BrokenPipeError:  # netcluster is gone
        pass


if __name__ == "__main__":
    main()
