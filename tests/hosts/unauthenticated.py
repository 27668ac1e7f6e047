"""Connects to every listening TCP port of this machine without the job's token. Usage: unauthenticated.py [RECORDING]

Sends garbage, and handshakes recorded by recorder.py, complete and truncated.
"""
import json
import os
import random
import socket
import struct
import sys

LISTENING = "0A"
RENDEZVOUS_PORT = int(os.environ["MASTER_PORT"])
CLAIM_BYTES, PROOF_BYTES = 56, 32
REFUSED = b"\2"
MOST_FAILURES = 8


def listeners():
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == LISTENING:
            address, port = local.split(":")
            yield socket.inet_ntoa(struct.pack("<I", int(address, 16))), int(port, 16)


def garbage():
    for length in (0, 1, 15, 16, 17, 5000):
        yield random.randbytes(length)


def recordings(path):
    """Recorded bytes: complete, truncated at the boundaries of a handshake's parts, and elsewhere."""
    for _, text in json.load(open(path)):
        data = bytes.fromhex(text)
        edges = (CLAIM_BYTES, CLAIM_BYTES + PROOF_BYTES, len(data))
        for cut in {1, 8, len(data), *(edge + off for edge in edges for off in (-1, 0, 1)), random.randrange(len(data) + 1)}:
            yield data[:cut]


def call(address, port, data):
    """A connection on which `data` was sent; None if the port does not accept it."""
    connection = socket.socket()
    connection.settimeout(0.2)
    try:
        connection.connect((address, port))
        connection.sendall(data)
        return connection
    except OSError:
        return None


def is_refused(connection):
    """True if the answer to a handshake is a refusal."""
    connection.settimeout(5)
    answer = b""
    while len(answer) <= CLAIM_BYTES and (more := connection.recv(1 << 10)):
        answer += more
    return answer[CLAIM_BYTES:] == REFUSED


def main(recording=None):
    payloads = [*garbage(), *(recordings(recording) if recording else ())]
    ports, held, num_refused = list(listeners()), [], 0
    for address, port in ports:
        num_failed = 0
        for data in payloads:
            if num_failed == MOST_FAILURES:
                break  # the port no longer accepts connections
            if not (connection := call(address, port, data)):
                num_failed += 1
                continue
            if port == RENDEZVOUS_PORT and data.startswith(b"shunt/bs") and len(data) >= CLAIM_BYTES + PROOF_BYTES:
                num_refused += is_refused(connection)
            held.append(connection)  # kept open until the end
            if len(held) % 2:
                connection.close()
    print(f"{len(ports)} ports, {len(held)} connections, {num_refused} refused")


main(*sys.argv[1:])
