"""Requests to a running cluster through a socket in its folder: client and server."""
import os
import selectors
import signal

from cluster import folder, messages, network


class Refused(Exception):
    pass


def ask(name, request, files=()):
    """Sends a request to the cluster of that name; returns its answer."""
    connection = messages.open_socket()
    try:
        connection.connect(str(folder.ALL / name / "control"))
    except OSError:
        raise Refused(f"no cluster {name} is running") from None
    messages.send(connection, request, files)
    answer, _ = messages.receive(connection)
    if answer is None:
        raise Refused(f"the cluster {name} ended")
    if "refused" in answer:
        raise Refused(answer["refused"])
    return answer


class Control:
    def __init__(self, path, hosts, num_nics, selector):
        self.hosts, self.num_nics, self.selector = hosts, num_nics, selector
        self.listener = messages.open_socket()
        self.listener.bind(str(path / "control"))
        self.listener.listen()
        selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def accept(self):
        client, _ = self.listener.accept()
        self.selector.register(client, selectors.EVENT_READ, lambda: self.answer(client))

    def close(self, client):
        if client.fileno() >= 0:
            self.selector.unregister(client)
            client.close()

    def answer(self, client):
        request, files = messages.receive(client)
        if request is None:
            return self.close(client)
        try:
            if request["ask"] == "execute":
                return self.execute(client, request, files)
            reply = {"link": self.link, "counters": self.counters}[request["ask"]](request)
        except (KeyError, ValueError, OSError, RuntimeError, Refused) as error:
            reply = {"refused": str(error)}
        finally:
            for file in files:
                os.close(file)
        self.reply(client, reply)

    def reply(self, client, message):
        try:
            messages.send(client, message)
        except OSError:  # the client is gone
            pass
        self.close(client)

    def find(self, name):
        for host in self.hosts:
            if name in (host.name, str(host.index)):
                return host
        raise Refused(f"there is no host {name}")

    def link(self, request):
        hosts = self.hosts if request["host"] == "all" else [self.find(request["host"])]
        nics = range(self.num_nics) if request["nic"] is None else [request["nic"]]
        if not set(nics) <= set(range(self.num_nics)):
            raise Refused(f"hosts have NICs 0 to {self.num_nics - 1}, not {request['nic']}")
        for host in hosts:
            for nic in nics:
                if request["state"] in ("up", "down"):
                    network.set_link(host.index, nic, request["state"])
                else:
                    network.limit(host.index, host.pid, nic, request["state"])
        return {}

    def counters(self, request):
        return {host.name: network.counters(host.pid, self.num_nics) for host in self.hosts}

    def execute(self, client, request, files):
        """Answers when the process has ended; ends the process if the client disconnects."""
        host = self.find(request["host"])

        def ended(status):
            self.reply(client, {"status": status})

        def disconnected():
            self.close(client)
            host.signal(signal.SIGTERM, number)

        number = host.start(request["command"], {}, files, ended)
        self.selector.modify(client, selectors.EVENT_READ, disconnected)
