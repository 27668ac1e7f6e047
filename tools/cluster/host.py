"""netcluster's side of one host: creates and removes its namespaces, starts processes in them and receives their status."""
import pathlib
import selectors
import subprocess
import sys

from cluster import messages

NAMESPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc"]
INIT = pathlib.Path(__file__).with_name("host_init.py")
KILLED = 128 + 9


class Host:
    def __init__(self, index, folder, environment):
        self.index = index
        self.name = f"host{index}"
        self.when_ended = {}  # number of a process: callback for its status
        self.num_started = 0
        self.connection, theirs = messages.open_pair()
        # In a new session, so that only netcluster receives Ctrl-C; killed when netcluster dies.
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "--kill-child",
             sys.executable, INIT, str(theirs.fileno()), self.name, folder],
            stdin=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()

    @property
    def pid(self):
        """The pid, outside, of a process in the host's network namespace."""
        return self.process.pid

    def wait_until_ready(self):
        if messages.receive(self.connection)[0] is None:
            raise RuntimeError(f"{self.name} did not start")

    def watch(self, selector):
        selector.register(self.connection, selectors.EVENT_READ, lambda: self.receive(selector))

    def start(self, command, environment, files, when_ended):
        """Files become stdin, stdout and stderr. Returns the number of the process."""
        number = self.num_started
        self.num_started += 1
        self.when_ended[number] = when_ended
        messages.send(self.connection, {"number": number, "command": command, "environment": environment}, files)
        return number

    def signal(self, which, number=None):
        """Signals the group of one process, or of all processes started here."""
        try:
            messages.send(self.connection, {"number": number, "signal": which})
        except OSError:  # the host and its processes are gone
            pass

    def receive(self, selector):
        message, _ = messages.receive(self.connection)
        if message:
            self.when_ended.pop(message["number"])(message["status"])
            return
        selector.unregister(self.connection)
        while self.when_ended:
            self.when_ended.popitem()[1](KILLED)

    def end(self):
        """Ends running processes; the namespaces disappear with the last one."""
        self.connection.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
