"""The processes of COMMAND: starts them, waits for them and ends them."""
import math
import os
import signal
import sys
import time

END_SECONDS = 2  # between asking processes to end and killing them


class Ranks:
    def __init__(self, selector, grace, output):
        self.selector, self.grace, self.output = selector, grace, output
        self.running = {}  # rank: its host
        self.status = 0  # of the first rank that failed
        self.deadline = math.inf
        self.ending = False

    def start(self, rank, host, command, environment, stdin):
        self.running[rank] = host
        pipes = [self.output.pipe(rank, target) for target in (1, 2)]
        host.start(command, environment, [stdin, *pipes], lambda status: self.ended(rank, status))
        for pipe in pipes:
            os.close(pipe)

    def ended(self, rank, status):
        host = self.running.pop(rank)
        if status and not self.status and not self.ending:
            self.status, self.deadline = status, time.monotonic() + self.grace
            others = f"; the others have {self.grace:g} s" if self.running else ""
            print(f"netcluster: rank {rank} on {host.name} ended with status {status}{others}", file=sys.stderr, flush=True)

    def wait(self):
        """Waits until all have ended, or until the grace time after a failure is over."""
        while self.running and (left := self.deadline - time.monotonic()) > 0:
            for key, _ in self.selector.select(None if left == math.inf else left):
                key.data()

    def end(self):
        """Asks running processes to end and waits for END_SECONDS."""
        self.ending = True
        for host in set(self.running.values()):
            host.signal(signal.SIGTERM)
        self.deadline = time.monotonic() + END_SECONDS
        self.wait()
