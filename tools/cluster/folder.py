"""The folder of a running cluster. Its owner holds a lock on it; an unlocked folder is left over from a killed run."""
import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

ALL = pathlib.Path("/run/shunt-netcluster")


@contextlib.contextmanager
def lock(folder, wait=True):
    """Yields True if the lock was acquired."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield acquire(file, wait)
    finally:
        os.close(file)


def acquire(file, wait):
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def remove_stale():
    for folder in ALL.iterdir():
        # An owner that ends may remove its folder at the same time.
        with contextlib.suppress(FileNotFoundError), lock(folder, wait=False) as stale:
            if stale:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def own():
    """A new folder. Its name, the pid of its owner and a random part, is the cluster's name."""
    ALL.mkdir(mode=0o755, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with lock(ALL):
            remove_stale()
            folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=ALL))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(lock(folder))
        yield folder
