"""Copies the output of ranks to the output of netcluster."""
import os
import selectors


class Output:
    """Copies whole lines, so that lines of different ranks never mix."""

    def __init__(self, selector, label):
        self.selector, self.label = selector, label
        self.rest = {}  # pipe: bytes after its last newline
        self.read = {}  # pipe: callback that reads more

    def pipe(self, rank, target):
        """Opens a pipe for a rank; returns the end to write to."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        label = f"[{rank}] ".encode() if self.label else b""
        self.rest[ours] = b""
        self.read[ours] = lambda: self.pass_on(ours, label, target)
        self.selector.register(ours, selectors.EVENT_READ, self.read[ours])
        return theirs

    def pass_on(self, pipe, label, target):
        data = os.read(pipe, 1 << 16)
        *lines, self.rest[pipe] = (self.rest[pipe] + data).split(b"\n")
        text = b"".join(label + line + b"\n" for line in lines)
        if not data:
            text = self.close(pipe, label)
        try:
            while text:
                text = text[os.write(target, text):]
        except BrokenPipeError:
            if data:  # the output is closed: close the pipe, so that the rank gets SIGPIPE
                self.close(pipe, label)

    def close(self, pipe, label):
        """Closes a pipe; returns its last line if it has no line break."""
        self.selector.unregister(pipe)
        os.close(pipe)
        del self.read[pipe]
        rest = self.rest.pop(pipe)
        return label + rest + b"\n" * self.label if rest else b""

    def drain(self):
        """Copies the remaining output, after all writers have ended."""
        while self.read:
            next(iter(self.read.values()))()
