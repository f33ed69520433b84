"""A program in its own terminal, by tmux: read the screen, type, resize."""

import os
import subprocess
import uuid

from conftest import until


class Tmux:
    """Run `words` on a screen of `width` x `height`. The shell around it prints `ended:STATUS` at
    its end.
    """

    def __init__(self, words, environment, width=100, height=24):
        self.socket = uuid.uuid4().hex
        script = '"$@"; echo "ended:$?"; stty -a | grep -o -e "-\\?icanon" -e "-\\?echo "; exec cat'
        size = ("-x", str(width), "-y", str(height))
        self.call("new-session", "-d", *size, "sh", "-c", script, "sh", *words, env=environment)

    def call(self, *words, **options):
        words = ["tmux", "-u", "-L", self.socket, "-f", "/dev/null", *words]
        done = subprocess.run(words, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self):
        """Return the lines of the screen, without trailing blanks and trailing empty lines."""
        return [line.rstrip() for line in self.call("capture-pane", "-p").rstrip().split("\n")]

    def type(self, *keys):
        self.call("send-keys", *keys)

    def resize(self, width, height):
        self.call("resize-window", "-x", str(width), "-y", str(height))

    def find_pid(self):
        """Return the pid of the program under the shell."""
        shell = int(self.call("list-panes", "-F", "#{pane_pid}"))
        [pid] = map(int, open(f"/proc/{shell}/task/{shell}/children").read().split())
        return pid

    def wait_for(self, text):
        """Wait until `text` is on the screen; return the screen."""
        found = []

        def look():
            found[:] = self.read()
            return any(text in row for row in found)

        try:
            until(look, 20)
        except AssertionError:
            raise AssertionError(f"no {text!r} on\n" + "\n".join(found)) from None
        return found

    def close(self):
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], stderr=subprocess.DEVNULL)
        path = f"/tmp/tmux-{os.getuid()}/{self.socket}"
        if os.path.exists(path):
            os.unlink(path)
