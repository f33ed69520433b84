"""Containers for the recipes, without Docker: a root of their own, process 1, an arbitrary uid without an entry in passwd."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess

from conftest import ROOT

SETUP = """
mount --bind /usr "$R/usr" && mount --bind /dev/null "$R/dev/null" && mount --bind "$LAB" "$R$LAB" || exit 125
if [ "$PID_HOST" ]; then mount --rbind /proc "$R/proc"; else mount -t proc proc "$R/proc"; fi || exit 125
for volume in $VOLUMES; do mount --bind "${volume%%:*}" "$R${volume#*:}" || exit 125; done
exec chroot --userspec="$AS" --groups= "$R" env -i "$@"
"""


class Image:
    """The root directory of an image that has solo and the programs of a machine, and its Dockerfile's last lines."""

    def __init__(self, machine, dockerfile):
        self.machine = machine
        self.root = machine.path / "root"
        self.places = {"/run/solo": str(machine.directory), "/var/lib/solo": str(machine.path / "journals")}
        words = re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", dockerfile, re.M)
        self.entrypoint, self.command = map(json.loads, words)
        for folder in ("usr", "proc", "dev", "etc", "run", "tmp", "app/bin", "var/lib"):
            (self.root / folder).mkdir(parents=True)
        for link in ("bin", "lib", "lib64", "sbin"):
            (self.root / link).symlink_to(f"usr/{link}")
        (self.root / "dev/null").touch()
        shutil.copytree(ROOT / "solo", self.root / "app/solo", ignore=shutil.ignore_patterns("__pycache__"))
        script = self.root / "app/bin/solo"
        script.write_text(
            "#!/usr/bin/python3 -IS\nimport sys\nsys.path.insert(0, '/app')\n" + (ROOT / "solo/__main__.py").read_text()
        )
        script.chmod(0o755)
        shutil.copy(machine.bin / "report.sh", self.root / "app/bin")
        (self.root / str(machine.path)[1:]).mkdir(parents=True)
        for folder in (self.root, self.root / "app", self.root / "app/bin", machine.path):
            folder.chmod(0o755)
        for file in ("log", "gate"):
            (machine.path / file).chmod(0o666)

    def start(self, *words, volumes=(), user="0:0", environment=(), pid_host=False, prefix=()):
        """Start the image with `words` in place of its command, by default as root. Return the process outside of it.

        A volume is OUTSIDE:INSIDE, paths as in the manual.
        """
        mounted = []
        for volume in volumes:
            outside, inside = volume.split(":")
            (self.root / inside[1:]).mkdir(parents=True, exist_ok=True)
            own = self.machine.replace_places(self.places.get(outside, outside))
            os.makedirs(own, exist_ok=True)
            mounted.append(f"{own}:{inside}")
        process = subprocess.Popen(
            [
                *(*prefix, "unshare", "--mount", "--propagation", "private", "--net", "--uts"),
                *([] if pid_host else ["--pid"]),
                *("--fork", "--kill-child", "sh", "-c", SETUP, "sh", "PATH=/app/bin:/usr/bin:/bin", *environment),
                *(words or [*self.entrypoint, *self.command]),
            ],
            env={
                **self.machine.environment,
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                **{"R": str(self.root), "AS": user, "VOLUMES": " ".join(mounted)},
                "PID_HOST": "1" if pid_host else "",
            },
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.machine.started.append(process)
        return process

    def docker(self, line):
        """Do what a line `docker run` says."""
        parser = argparse.ArgumentParser()
        for word in ("docker", "run", "image"):
            parser.add_argument(word)
        parser.add_argument("--rm", action="store_true")
        parser.add_argument("-v", action="append")
        options = parser.parse_args(shlex.split(line))
        assert (options.docker, options.run) == ("docker", "run")
        return self.start(volumes=options.v)

    def compose(self, service):
        """Do what a service of a compose file says."""
        assert (service["image"], service["restart"]) == ("report", "on-failure")
        environment = [f"{name}={value}" for name, value in service["environment"].items()]
        words = [*service["entrypoint"], *service["command"]]
        return self.start(*words, environment=environment, volumes=service["volumes"], user=service["user"])


def find_first(process):
    """Return the pid, outside, of the container's process 1."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        return int(file.read())
