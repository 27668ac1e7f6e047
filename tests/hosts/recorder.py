"""Records the first bytes of every TCP connection to this machine, as JSON: [[port, hex bytes], …]. Usage: recorder.py FILE

Captures packets, so it records real handshakes with rank 0 and between ranks.
"""
import json
import os
import socket
import struct
import sys

MOST_BYTES = 4096
TCP = 6


def payloads(wire):
    """(connection, port, sequence number, is its first packet, bytes) of each received IPv4 packet."""
    while True:
        packet, (_, _, direction, *_) = wire.recvfrom(1 << 16)
        if direction == socket.PACKET_OUTGOING or packet[23] != TCP:
            continue
        segment = packet[14 + 4 * (packet[14] & 15):14 + struct.unpack_from("!H", packet, 16)[0]]
        source, port, sequence = struct.unpack_from("!HHI", segment)
        yield (packet[26:30], source, port), port, sequence, segment[13] & 2, segment[4 * (segment[12] >> 4):]


def main(path):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    wire.bind(("eth0", 0))
    print("recording", flush=True)
    begins = {}  # connection: sequence number of its first byte
    recorded = {}  # connection: (port, bytes)
    for connection, port, sequence, is_first, data in payloads(wire):
        if is_first:
            begins[connection], recorded[connection] = sequence + 1, (port, b"")
        known = recorded.get(connection, (port, b""))[1]
        if connection not in begins or not data or (sequence - begins[connection]) % 2**32 != len(known) or len(known) >= MOST_BYTES:
            continue  # retransmitted, out of order, or enough bytes
        recorded[connection] = port, known + data[:MOST_BYTES - len(known)]
        with open(f"{path}.new", "w") as file:
            json.dump([(port, data.hex()) for port, data in recorded.values()], file)
        os.rename(f"{path}.new", path)


main(sys.argv[1])
