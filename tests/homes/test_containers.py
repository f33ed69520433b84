"""solo in containers of a real runtime: as process 1, with few rights, with names that containers
share, and as a CronJob.
"""

import os
import re
import signal
import subprocess

import pytest
from conftest import ROOT, find_script, finish, read_line, until, write_program
from pages import EXAMPLES, read_example, read_readme
from podman import Podman
from servers import Etcd

pytestmark = pytest.mark.full

yaml = pytest.importorskip("yaml")

CONTAINERFILE = ROOT / "packaging/container/Containerfile"
CRONJOB = EXAMPLES / "cronjob.yaml"
RUNTIME = [pytest.mark.root, pytest.mark.tool("podman", "crun", "debootstrap", "unshare")]
SHOW_NAMESPACE = ("sh", "-c", "readlink /proc/self/ns/pid; exec sleep 1000")
# No right that a container can lack. podman sets HOME always.
RIGHTS = "--read-only --read-only-tmpfs=false --cap-drop=all --security-opt=no-new-privileges --ipc=none --passwd=false".split()
STRICT = (*RIGHTS, "--user=12345:12345", '--entrypoint=["env", "-u", "HOME", "solo"]')
PASSWORD = "of root"
LEAST = """
grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t\\n' ' '; echo
echo "home=${HOME-none} shm=$(test -e /dev/shm && echo yes) passwd=$(grep -c :12345: /etc/passwd)"
touch /file 2>&1 | sed 's/.*: //'
"""


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    podman = Podman(tmp_path_factory.mktemp("podman"))
    yield podman.build()
    podman.close()


@pytest.fixture
def volume(lab):
    """The option that mounts the names of the lab, which belong to root."""
    lab.directory.mkdir(mode=0o700)
    return f"--volume={lab.directory}:/run/solo"


# --- the image------------------------------------------------------------------------------------


def test_hadolint_accepts_the_containerfile():
    hadolint = find_script("hadolint")

    found = run(hadolint, CONTAINERFILE)

    assert (found.returncode, found.stdout) == (0, "")
    assert run(hadolint, "-", input="FROM debian\nCMD a\nCMD b\n").returncode == 1


class TestImage:
    pytestmark = RUNTIME

    def test_solo_is_process_1_and_passes_on_the_status(self, podman):
        script = 'tr "\\0" "\\n" </proc/1/cmdline; echo $PPID; exit 7'
        code, out, err = finish(podman.start("report", "sh", "-c", script))

        assert (code, err) == (7, "")
        assert out.split()[:7] == [
            "python3",
            "/usr/local/bin/solo",
            "-n",
            "report",
            "--wait",
            "10m",
            "--",
        ]
        assert out.split()[-1] == "2"  # the launcher is its child

    def test_stop_kills_what_ignores_sigterm_and_the_next_container_runs(self, podman, volume):
        script = "trap '' TERM; echo; sleep 1000; sleep 1000"
        process = podman.start(volume, "--name=stubborn", "report", "sh", "-c", script)
        read_line(process)

        podman.check("stop", "--time=1", "stubborn")

        assert process.wait() == 128 + signal.SIGKILL
        code, _, err = finish(podman.start(volume, "report", "true"))
        assert code == 0 and (
            not err or "taking over" in err
        )  # silent if it got the same namespace number

    def test_any_uid_runs_without_a_volume(self, podman):
        assert finish(podman.start("--user=12345:0", "report", "echo", "ran")) == (0, "ran\n", "")

    def test_least_rights_and_a_temporary_directory_suffice(self, podman):
        words = (*STRICT, "--tmpfs=/run/solo", "report")

        code, out, err = finish(
            podman.start(
                *words,
                "-n",
                "job",
                "--once-per",
                "5m",
                "--tree",
                "-t",
                "1h",
                "--",
                "sh",
                "-c",
                LEAST,
            )
        )
        checked = finish(podman.start(*words, "doctor"))

        assert (code, err) == (0, "")
        rights, places, refused = out.splitlines()
        assert rights.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
        assert (places, refused) == ("home=none shm= passwd=0", "Read-only file system")
        assert checked[0] == 0 and checked[1].endswith("ready\n"), checked

    def test_strict_service_of_the_examples_runs(self, podman):
        service = yaml.safe_load(read_example("compose.yaml"))["services"]["strict"]
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        [(name, value)] = service["environment"].items()
        words = [
            "--read-only",
            "--read-only-tmpfs=false",
            "--cap-drop=all",
            f"--user={service['user']}",
        ]
        words += [f"--env={name}={value}", f"--tmpfs={service['tmpfs']}"]

        done = finish(podman.start(*words, "report", "id", "-u"))

        assert done == (0, "1234\n", "")

    def test_read_only_root_without_a_directory_is_refused_in_one_line(self, podman):
        code, out, err = finish(podman.start(*STRICT, "report", "-n", "job", "--", "true"))

        assert (code, out, err.count("\n")) == (125, "", 1)
        assert err.startswith("solo: job: cannot create /run/solo/job: Read-only file system (")

    def test_sockets_need_no_directory(self, podman):
        words = (*STRICT, "--env=SOLO_DIR=", "report", "--via", "socket", "-n", "job", "--")

        assert finish(podman.start(*words, "echo", "ran")) == (0, "ran\n", "")

    def test_directory_without_sticky_bit_is_refused_but_not_one_within(self, podman):
        """An emptyDir of Kubernetes has mode 2777, and cronjob.yaml uses a directory in it."""
        words = (*STRICT, "--tmpfs=/run/solo:mode=2777")

        refused = finish(podman.start(*words, "report", "-n", "job", "true"))

        assert refused[0] == 125 and "no sticky bit" in refused[2]
        assert (
            finish(
                podman.start(
                    *words, "--env=SOLO_DIR=/run/solo/names", "report", "-n", "job", "true"
                )
            )[0]
            == 0
        )


# --- shared names---------------------------------------------------------------------------------


class TestSharedNames:
    pytestmark = RUNTIME

    def test_containers_with_own_pids_wait_in_one_queue_even_after_sigkill(
        self, podman, lab, volume
    ):
        """The lines of README."""
        docker, host = next(block.lines for block in read_readme() if "docker run" in block.text)
        _, _, _, option, volumes, image = docker.split()
        shared = (option, volumes.replace("/run/solo:", f"{lab.directory}:"))
        first = podman.start(*shared, "--name=first", image, *SHOW_NAMESPACE)
        namespace = read_line(first)
        second = podman.start(*shared, "--name=second", image, *SHOW_NAMESPACE)
        until(lambda: lab.count_waiting("report") == 1)
        third = lab.start(*host.split()[1:-1], "echo", "third")
        until(lambda: lab.count_waiting("report") == 2)
        assert lab.run("-n", "report", "--", "true").returncode == 75

        podman.check("kill", "first")

        assert first.wait() == 128 + signal.SIGKILL
        assert namespace != read_line(second) and third.poll() is None
        podman.check("stop", "--time=60", "second")
        assert second.wait() == 128 + signal.SIGTERM
        assert finish(third) == (0, "third\n", "")

    def test_containers_of_one_user_namespace_map_exclude_each_other_and_others_are_refused(
        self, podman, lab, volume
    ):
        """Root of the containers owns the directory; the root of another map and that of the host
        do not.
        """
        os.chown(lab.directory, 100_000, 100_000)
        # crun gives the streams of a container to its root. Without --interactive one of them is
        # the machine's /dev/null.
        mapped, others = (
            ("--interactive", f"--uidmap=0:{first}:65536", volume) for first in (100_000, 300_000)
        )
        holder = podman.start(*mapped, "--name=mapped", "report", *SHOW_NAMESPACE)
        read_line(holder)
        once = ("--entrypoint=solo", "report", "-n", "report", "true")

        codes = [finish(podman.start(*words, *once))[0] for words in (mapped, others)]
        codes.append(lab.run("-n", "report", "true").returncode)
        podman.check("stop", "--time=60", "mapped")

        assert codes == [75, 125, 125]
        assert os.stat("/dev/null").st_uid == 0
        assert holder.wait() == 128 + signal.SIGTERM
        assert finish(podman.start(*mapped, *once))[0] == 0

    def test_service_of_a_group_of_the_examples_excludes_others_of_the_group(
        self, podman, lab, volume
    ):
        """Its skip is a success, which restarts nothing."""
        service = yaml.safe_load(read_example("compose.yaml"))["services"]["report"]
        assert (service["user"], service["volumes"]) == ("1234:4242", ["/srv/locks:/srv/locks"])
        os.chown(lab.directory, 0, 4242)
        lab.directory.chmod(0o2770)
        words = (
            *RIGHTS,
            "--entrypoint=",
            f"--volume={lab.directory}:/srv/locks",
            "--env=SOLO_DIR=/srv/locks",
        )
        once = ("solo", "-n", "report", "true")

        def start(user, *command, name="other"):
            return podman.start(*words, f"--user={user}", f"--name={name}", "report", *command)

        holder = start(service["user"], *service["entrypoint"], *SHOW_NAMESPACE, name="member")
        read_line(holder)
        found = [finish(start(service["user"], *service["entrypoint"], "true"))[0]]
        found += [finish(start(user, *once))[0] for user in ("999:4242", "999:999")]
        podman.check("stop", "--time=60", "member")

        assert found == [0, 75, 125] and holder.wait() == 128 + signal.SIGTERM


# --- Kubernetes-----------------------------------------------------------------------------------


def read_cronjob():
    """Return (pod template, Secret)."""
    job, secret = yaml.safe_load_all(CRONJOB.read_text())
    return job["spec"]["jobTemplate"]["spec"]["template"]["spec"], secret


@pytest.mark.parametrize("version", ["1.29", "1.32"])
def test_cronjob_fits_the_schema_of_kubernetes(tmp_path, version):
    validate = find_script("kubernetes-validate")
    (tmp_path / "wrong.yaml").write_text(CRONJOB.read_text().replace("runAsNonRoot", "runAsNoRoot"))

    found = run(validate, "--strict", "-k", version, CRONJOB)
    wrong = run(validate, "--strict", "-k", version, tmp_path / "wrong.yaml")

    assert found.returncode == 0, found.stdout + found.stderr
    assert wrong.returncode != 0 and "runAsNoRoot" in wrong.stdout + wrong.stderr


def make_pod(spec, secret, path):
    """Return the words of `podman run` that start the only container as kubelet would."""
    [container], pod = spec["containers"], spec["securityContext"]
    own = container["securityContext"]
    assert pod["runAsNonRoot"] and pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    words = [
        *RIGHTS,
        f"--user={pod['runAsUser']}:{pod['runAsGroup']}",
        "--entrypoint=",
        "--network=host",
    ]
    assert f"--cap-drop={own['capabilities']['drop'][0].lower()}" in words
    words += [f"--env={one['name']}={one['value']}" for one in container["env"]]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "emptyDir" in volume:
            words.append(f"--tmpfs={mount['mountPath']}:mode=2777")
            continue
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        file = path / mount["subPath"]
        file.write_text(secret["stringData"][mount["subPath"]])
        os.chown(file, 0, pod["fsGroup"])
        file.chmod(volume["secret"]["defaultMode"])
        words.append(f"--volume={file}:{mount['mountPath']}:ro")
    return words, container["command"]


class TestCronJob:
    pytestmark = [*RUNTIME, pytest.mark.tool("etcd", "etcdctl")]

    @pytest.fixture
    def etcd(self, tmp_path):
        """A server that wants the password of the Secret."""
        server = Etcd(tmp_path / "etcd").start()
        login = dict(
            re.findall(r'(user|password) = "(.*)"', read_cronjob()[1]["stringData"]["solo.toml"])
        )
        for words in (f"root:{PASSWORD}", f"{login['user']}:{login['password']}"):
            server.ask("user", "add", words)
            server.ask("user", "grant-role", words.partition(":")[0], "root")
        server.ask("auth", "enable")
        yield server
        server.stop()

    @pytest.fixture
    def start(self, podman, etcd, tmp_path):
        """Return a function that starts the pod. `script` is its report.sh; `changes` are {word:
        another}.
        """

        def start(script, *options, changes=(), password=None):
            spec, secret = read_cronjob()
            text = re.sub(
                'url = ".*"', f'url = "{etcd.url}/cron"', secret["stringData"]["solo.toml"]
            )
            secret["stringData"]["solo.toml"] = text.replace(
                "change this", password or "change this"
            )
            path = tmp_path / f"pod-{len(list(tmp_path.iterdir()))}"
            path.mkdir()
            write_program(path / "report.sh", f"#!/bin/sh\n{script}\n")
            words, command = make_pod(spec, secret, path)
            command = [dict(changes).get(word, word) for word in command]
            return podman.start(
                *words,
                *options,
                f"--volume={path}/report.sh:/usr/bin/report.sh",
                "report",
                *command,
            )

        return start

    def test_pods_run_the_job_once_in_a_period_and_never_two_at_a_time(self, podman, start, etcd):
        def count_contenders():
            words = ("--user", f"root:{PASSWORD}", "get", "--prefix", "cron/report/", "--keys-only")
            return etcd.ask(*words).count("cron/")

        day = {"--once-per=5m": "--once-per=1d"}
        first = start("echo ran; exec sleep 1000", "--name=one", changes=day)
        assert read_line(first) == "ran" and count_contenders() == 1
        assert finish(start("echo ran", changes=day)) == (0, "", "")
        later = start("echo ran", changes={"--once-per=5m": "--tree"})
        until(lambda: count_contenders() == 2 or later.poll() is not None)
        assert later.poll() is None

        podman.check("stop", "--time=30", "one")

        assert first.wait() == 128 + signal.SIGTERM
        assert finish(later)[:2] == (0, "ran\n")

    def test_password_is_read_from_the_secret_alone(self, start):
        show = r"""tr '\0' '\n' </proc/1/cmdline; env; cat /etc/solo.toml"""

        code, out, err = finish(start(show))
        wrong = finish(start("echo ran", password="another"))

        assert (code, err, out.count("change this")) == (0, "", 1)
        assert wrong[:2] == (125, "") and wrong[2].count("\n") == 1, wrong
