"""Sends garbage to every TCP port that listens on this host, with and without the number that UCX's connections begin with."""
import random
import socket
import struct

UCX_MAGIC = struct.pack("<Q", 0xCAFEBABE12345678)
LISTENING = "0A"


def listeners():
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == LISTENING:
            address, port = local.split(":")
            yield socket.inet_ntoa(struct.pack("<I", int(address, 16))), int(port, 16)


def main():
    held, num_ports = [], 0
    for address, port in listeners():
        num_ports += 1
        for begin in (b"", UCX_MAGIC):
            for length in (0, 1, 16, 5000):
                stranger = socket.socket()
                stranger.settimeout(0.2)
                try:
                    stranger.connect((address, port))
                    stranger.sendall(begin + random.randbytes(length))
                except OSError:
                    continue
                held.append(stranger)  # half-open until the end
    print(f"{num_ports} ports, {len(held)} connections")


main()
