"""Messages over a local socket: each packet is a JSON object, with open files attached."""
import json
import socket

MAX_BYTES = 1 << 17
MAX_FILES = 3  # stdin, stdout, stderr


def open_socket():
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def open_pair():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(connection, message, files=()):
    socket.send_fds(connection, [json.dumps(message).encode()], files)


def receive(connection):
    """(message, files); the message is None if the other side has closed the connection."""
    try:
        data, files, _, _ = socket.recv_fds(connection, MAX_BYTES, MAX_FILES, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None, []
    return (json.loads(data) if data else None), files
