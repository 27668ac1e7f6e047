"""What ranks print, on its way to the output of netcluster."""
import os
import selectors


class Output:
    """Passes on whole lines: those of different ranks never mix."""

    def __init__(self, selector, label):
        self.selector, self.label = selector, label
        self.rest = {}  # pipe: what came after its last newline
        self.read = {}  # pipe: how to read on

    def pipe(self, rank, target):
        """The end to write to."""
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
            if data:  # nobody reads on: the rank learns it as it would without us
                self.close(pipe, label)

    def close(self, pipe, label):
        """The last line, where it has no end."""
        self.selector.unregister(pipe)
        os.close(pipe)
        del self.read[pipe]
        rest = self.rest.pop(pipe)
        return label + rest + b"\n" * self.label if rest else b""

    def drain(self):
        """Once nobody can write any more."""
        while self.read:
            next(iter(self.read.values()))()
