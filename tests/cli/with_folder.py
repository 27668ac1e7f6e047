"""What tests share that write files."""
import os
import tempfile
import unittest


class WithFolder(unittest.TestCase):
    """With a folder of its own, which is gone afterwards."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)
