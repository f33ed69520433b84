"""Units under a real systemd, pid 1 of a container (guest.py): stopped, killed, started by timers,
and sandboxed.

tests/units has units that are files, examples/systemd the templates to copy; other units are
transient.
"""

import json
import re
import shlex
import shutil
import socket

import pytest
from conftest import ROOT, show_page, until
from guest import TEMPLATES, UNITS, booted

pytestmark = [
    pytest.mark.long,
    pytest.mark.full,
    pytest.mark.root,
    pytest.mark.network,
    pytest.mark.tool("debootstrap", "systemd-nspawn", "nsenter"),
]

ALICE, BOB = 1000, 1001
SERVICE = "/usr/bin/python3", "/lab/service.py"
SET = re.compile(r"[A-Z]\w+=[^\s,;)]+")  # a setting in a message


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    lab = tmp_path_factory.mktemp("guest")
    lab.chmod(0o755)
    with booted(lab) as guest:
        for uid, name in ((ALICE, "alice"), (BOB, "bob")):
            guest.do("useradd", "--create-home", f"--uid={uid}", name)
        (lab / "shared").mkdir()
        (lab / "shared").chmod(0o1777)
        guest.do("mkdir", "/etc/solo")
        yield guest


@pytest.fixture
def unit(guest, request):
    """A name made from that of the test, in one word."""
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_")).strip("-")
    yield name
    guest.run("systemctl", "kill", "--signal=KILL", f"{name}.service")


def serve(guest, unit, *properties, options=(), arguments=()):
    """Start service.py under solo. Unit, name and log are called `unit`. Return once it is ready
    for signals.
    """
    guest.make_log(unit)
    result = guest.start(
        unit, *properties, "solo", "-n", unit, *options, "--", *SERVICE, unit, *arguments
    )
    assert result.returncode == 0, result.stderr
    guest.wait_line(unit, "start")


def read_events(guest, log):
    """Return the first words of the lines that a service.py logged."""
    return [event.split()[0] for event in guest.read(log)]


def is_free(guest, name, *words):
    return guest.run("solo", "-n", name, *words, "true").returncode == 0


# --- stop, kill, restart


MODES = pytest.mark.parametrize("mode", ["control-group", "mixed", "process"])


@MODES
@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_sigterm_of_systemctl_reaches_the_command_once(guest, unit, mode, verb):
    serve(guest, unit, f"KillMode={mode}", *["--remain-after-exit"] * (verb == "kill"))

    guest.do("systemctl", verb, unit)
    until(lambda: verb == "stop" or guest.show(unit, "SubState") == "exited")

    assert read_events(guest, unit) == ["start", "SIGTERM", "end"]
    assert guest.show(unit, "Result") == "success" and is_free(guest, unit)


@MODES
def test_systemctl_restart_never_overlaps(guest, unit, mode):
    serve(guest, unit, f"KillMode={mode}")

    guest.do("systemctl", "restart", unit)
    guest.wait_line(unit, "start", 2)

    assert read_events(guest, unit) == ["start", "SIGTERM", "end", "start"]


@pytest.mark.parametrize(
    "setting, signals", [("KillSignal=SIGINT", "SIGINT"), ("SendSIGHUP=yes", "SIGTERM SIGHUP")]
)
def test_configured_signals_reach_the_command_once_each(guest, unit, setting, signals):
    serve(guest, unit, setting)

    guest.do("systemctl", "stop", unit)

    assert sorted(read_events(guest, unit)) == sorted(["start", *signals.split(), "end"])


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_sigterm_to_the_main_process_alone_does_not_reach_a_handler(guest, unit, name):
    """Nor does SIGINT (solo(1), CAVEATS). It looks like one for all processes, which the command
    would then get twice.
    """
    serve(guest, unit, arguments=["stubborn"])
    launcher = guest.show(unit, "MainPID")

    guest.do("systemctl", "kill", "--kill-whom=main", f"--signal={name}", unit)
    until(lambda: not int(guest.do("grep", "ShdPnd", f"/proc/{launcher}/status").split()[1], 16))
    guest.do("systemctl", "kill", "--kill-whom=main", "--signal=HUP", unit)
    guest.wait_line(
        unit, "SIGHUP"
    )  # the launcher handled the first signal before it forwarded this one
    events = read_events(guest, unit)
    guest.do("systemctl", "kill", f"--signal={name}", unit)
    guest.wait_line(unit, f"SIG{name}")

    assert events == ["start", "SIGHUP"]


@pytest.mark.parametrize("name", ["HUP", "USR1"])
def test_other_signals_of_systemctl_kill_reach_the_command_twice(guest, unit, name):
    serve(guest, unit)

    guest.do("systemctl", "kill", f"--signal={name}", unit)

    guest.wait_line(unit, f"SIG{name}", 2)


def test_hidden_proc_still_delivers_the_stop_signal_once(guest, unit):
    """Send a real-time signal, as two of them are not merged."""
    serve(guest, unit, "User=alice", "ProtectProc=invisible", "KillSignal=SIGRTMAX")

    guest.do("systemctl", "stop", unit)

    assert read_events(guest, unit) == ["start", "SIGRTMAX", "end"]


def test_stop_of_a_scope_reaches_the_command_once(guest, unit):
    scope = (
        f"systemd-run --quiet --scope --unit={unit} solo -n {unit} -- {shlex.join(SERVICE)} {unit}"
    )
    guest.do("sh", "-c", f"setsid {scope} </dev/null >/dev/null 2>&1 &")
    guest.wait_line(unit, "start")

    guest.do("systemctl", "stop", f"{unit}.scope")
    until(lambda: is_free(guest, unit))

    assert read_events(guest, unit) == ["start", "SIGTERM", "end"]


def test_stop_by_a_user_manager_reaches_the_command_once(guest, unit):
    guest.do("systemctl", "start", f"user@{ALICE}.service")
    guest.make_log(unit)
    manager = "env", f"XDG_RUNTIME_DIR=/run/user/{ALICE}"
    start = (
        "systemd-run",
        "--user",
        "--quiet",
        f"--unit={unit}",
        "solo",
        "-n",
        unit,
        "--",
        *SERVICE,
        unit,
    )
    started = guest.run(*manager, *start, user=ALICE)
    assert started.returncode == 0, started.stderr
    guest.wait_line(unit, "start")

    assert guest.run(*manager, "systemctl", "--user", "stop", unit, user=ALICE).returncode == 0

    assert read_events(guest, unit) == ["start", "SIGTERM", "end"]


# --- SIGKILL of the main process


def test_restart_after_sigkill_of_the_main_process_never_overlaps(guest, unit):
    serve(guest, unit, "Restart=always", "RestartSec=0")

    guest.do("systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit)
    guest.wait_line(unit, "start", 2)

    assert "overlap" not in read_events(guest, unit)


def test_next_run_waits_for_an_orphan_of_killmode_process(guest, unit):
    restart = "Restart=always", "RestartSec=0", "KillMode=process"
    serve(guest, unit, *restart, options=["--wait", "forever"])
    [start] = guest.read(unit)

    guest.do("systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit)
    until(
        lambda: any(
            row["state"] == "waiting"
            for row in json.loads(guest.do("solo", "list", "--json", unit))
        )
    )
    states = {
        row["state"]: row["child"] for row in json.loads(guest.do("solo", "list", "--json", unit))
    }
    guest.do("kill", "-TERM", states["orphaned"])
    guest.wait_line(unit, "start", 2)

    assert start == f"start {states['orphaned']}"
    assert read_events(guest, unit) == ["start", "SIGTERM", "end", "start"]


# --- what a service inherits from systemd, and reports to it


def test_socket_activation_passes_the_socket_to_the_command(guest):
    guest.do("systemctl", "start", "echo.socket")

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"/proc/{guest.leader}/root/run/echo.socket")
        pid, names = client.makefile().readline().split()
    guest.do("systemctl", "stop", "echo.socket", "echo.service")

    assert guest.read("echo")[0] == f"start {pid}" and names == "front"


def test_notify_service_becomes_active_and_feeds_its_watchdog(guest):
    guest.do("systemctl", "start", "ready")
    fed = guest.show("ready", "WatchdogTimestampMonotonic")
    until(lambda: guest.show("ready", "WatchdogTimestampMonotonic") != fed)
    state = guest.show("ready", "ActiveState")

    guest.do("systemctl", "kill", "--kill-whom=main", "--signal=USR1", "ready")
    guest.wait_state("ready", "failed")

    assert state == "active" and read_events(guest, "ready") == ["watchdog", "start", "SIGUSR1"]
    assert guest.show("ready", "Result") == "watchdog" and is_free(guest, "ready")


def test_command_that_is_the_main_pid_is_stopped_by_one_sigterm(guest, unit):
    script = f"systemd-notify --ready MAINPID=$$$$; exec {shlex.join(SERVICE)} {unit}"
    guest.start(unit, "Type=notify", "NotifyAccess=all", "solo", "-n", unit, "sh", "-c", script)
    guest.wait_line(unit, "start")
    main = guest.show(unit, "MainPID")

    guest.do("systemctl", "stop", unit)

    assert guest.read(unit) == [f"start {main}", "SIGTERM", "end"]
    assert guest.show(unit, "Result") == "success" and is_free(guest, unit)


# --- skipped


def test_second_timer_of_a_job_skips_with_success(guest):
    guest.do("systemctl", "start", "sync@a.timer", "sync@b.timer")
    until(lambda: "75" in [guest.show(f"sync@{letter}", "ExecMainStatus") for letter in "ab"])
    states = [
        (guest.show(f"sync@{letter}", "ActiveState"), guest.show(f"sync@{letter}", "Result"))
        for letter in "ab"
    ]
    (guest.lab / "sync.go").touch()

    assert sorted(states) == [("activating", "success"), ("inactive", "success")]
    assert len(guest.read("sync")) == 1


def test_exec_condition_runs_the_unit_only_after_a_success_of_another_job(guest, unit):
    condition = "ExecCondition=sh -c 'solo check backup --within 26h; [ $$? -lt 2 ]'"
    words = [condition, "/bin/echo", "ran"]
    assert condition in show_page("solo.7")

    def start(number):
        return guest.run_unit(f"{unit}-{number}", *words)[1]

    unknown = start(1)
    guest.do("solo", "-n", "backup", "true")
    well = start(2)
    guest.run("solo", "-n", "backup", "false")
    failing = start(3)

    assert "ran" in well and well[0].startswith("SOLO OK: backup: success ")
    assert "ran" not in unknown + failing
    assert unknown[0].startswith("SOLO UNKNOWN: ") and failing[0].startswith("SOLO CRITICAL: ")


def test_exec_condition_skips_the_unit_while_a_name_is_held(guest):
    serve(guest, "nightly")
    guest.do("systemctl", "start", "gated")
    skipped = not (guest.lab / "gated").exists()
    guest.do("systemctl", "stop", "nightly")

    guest.do("systemctl", "start", "gated")

    assert skipped and (guest.lab / "gated").exists()
    assert "nightly: busy: held for" in "\n".join(guest.read_messages("gated"))


# --- sandboxed


RECIPES = {
    "private-tmp": ["User=alice", "PrivateTmp=yes"],
    "private-users": ["User=alice", "PrivateUsers=yes"],
    "no-privileges": (
        "NoNewPrivileges=yes SystemCallFilter=@system-service MemoryDenyWriteExecute=yes RestrictAddressFamilies=AF_UNIX"
        " LockPersonality=yes RestrictNamespaces=yes PrivateDevices=yes PrivateNetwork=yes ProtectKernelTunables=yes"
        " ProtectControlGroups=yes"
    ).split(),
    "delegate": ["Delegate=yes"],
    "strict": (
        "ProtectSystem=strict ReadWritePaths=/lab RuntimeDirectory=solo RuntimeDirectoryMode=0700"
        " RuntimeDirectoryPreserve=yes StateDirectory=solo StateDirectoryMode=0700"
    ).split(),
    "home-read-only": [
        "User=alice",
        "ProtectHome=read-only",
        "ReadWritePaths=/home/alice/.local/state/solo",
    ],
    "home-hidden": ["User=alice", "ProtectHome=tmpfs", "BindPaths=/home/alice/.local/state/solo"],
    "service-user": [
        "User=www-data",
        "ProtectSystem=strict",
        "ReadWritePaths=/lab /var/lib/solo-users/33",
    ],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_sandboxed_unit_contends_for_the_same_name(guest, unit, recipe):
    user = {"User=alice": ALICE, "User=www-data": 33}.get(RECIPES[recipe][0])
    guest.do("install", "-d", "-m", "700", "-o", "33", "/var/lib/solo-users/33")
    assert guest.run("solo", "-n", unit, "true", user=user).returncode == 0
    serve(guest, unit, *RECIPES[recipe], options=["--no-orphan", "--timeout", "10m", "--tree"])

    busy = guest.run("solo", "-n", unit, "true", user=user)
    guest.do("systemctl", "stop", unit)

    assert busy.returncode == 75 and read_events(guest, unit) == ["start", "SIGTERM", "end"]
    assert guest.run("solo", "-n", unit, "true", user=user).returncode == 0


def test_unit_in_a_pid_namespace_contends_for_the_same_name(guest, unit):
    if guest.run_unit(f"{unit}-probe", "PrivatePIDs=yes", "true")[0]:
        pytest.skip("this systemd has no PrivatePIDs=")
    serve(guest, unit, "PrivatePIDs=yes")

    assert guest.run("solo", "-n", unit, "true").returncode == 75
    guest.do("systemctl", "stop", unit)
    assert is_free(guest, unit, "--wait", "30s")


GIVE = "solo doctor --fix alice"
HIDDEN = f" (if the unit hides the home directory: ProtectHome=no; else as root: {GIVE})"
REFUSALS = {
    "strict": (
        ["ProtectSystem=strict"],
        "(in a unit: RuntimeDirectory=solo, RuntimeDirectoryMode=0700, RuntimeDirectoryPreserve=yes, "
        "StateDirectory=solo, StateDirectoryMode=0700; without a file: --via socket, in every run of the name)",
    ),
    "home": (["User=alice", "ProtectHome=yes"], HIDDEN),
    "home-read-only": (
        ["User=alice", "ProtectHome=read-only"],
        "Read-only file system (in a unit: ReadWritePaths=; ",
    ),
    "home-tmpfs": (["User=alice", "ProtectHome=tmpfs"], HIDDEN),
    "service-user": (["User=backup"], "belongs to uid 0 (as root: solo doctor --fix backup)"),
    "dynamic": (
        ["DynamicUser=yes"],
        "(in a unit: User=NAME, RuntimeDirectory=NAME, RuntimeDirectoryMode=0700, "
        "RuntimeDirectoryPreserve=yes, Environment=SOLO_DIR=/run/NAME)",
    ),
    "proc": (["ProcSubset=pid"], "No such file or directory (in a unit: ProcSubset=all)"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusal_for_lack_of_a_directory_has_the_remedy_in_one_line(guest, unit, case):
    settings, reason = REFUSALS[case]
    guest.do("solo", "-n", unit, "true")
    guest.run("solo", "-n", unit, "true", user=ALICE)

    status, lines = guest.run_unit(unit, *settings, "solo", "-n", unit, "echo", "ran")

    assert status == 125 and len(lines) == 1 and reason in lines[0], lines


def ask_settings(guest, unit, *properties):
    """Return `properties` plus those that the refusal in a unit with them recommends."""
    status, [message] = guest.run_unit(f"{unit}-refused", *properties, "solo", "-n", unit, "true")
    assert status == 125
    recommended = (
        re.search(r"in a unit: (.*?)[;)]", message)[1].replace("NAME", "shared").split(", ")
    )
    return [*properties, *recommended]


@pytest.mark.parametrize(
    "settings", [["ProtectSystem=strict"], ["DynamicUser=yes", "User=shared"]], ids=" ".join
)
def test_settings_recommended_by_a_refusal_are_enough(guest, unit, settings):
    settings = ask_settings(guest, unit, *settings)

    status, lines = guest.run_unit(unit, *settings, "solo", "-v", "-n", unit, "solo", "history")

    assert status == 0 and any(unit in row and "running" in row for row in lines), lines


@pytest.mark.parametrize("preserve", ["yes", "no"])
def test_two_units_of_one_runtime_directory_overlap_only_without_preserve(guest, unit, preserve):
    """systemd removes the directory, and the first unit's ticket in it, when the second unit
    stops.
    """
    sandbox = "DynamicUser=yes", "User=shared", "ReadWritePaths=/lab"
    settings = ask_settings(guest, unit, *sandbox)
    assert "RuntimeDirectoryPreserve=yes" in settings
    settings.append(f"RuntimeDirectoryPreserve={preserve}")
    serve(guest, unit, *settings)

    second, _ = guest.run_unit(f"{unit}-second", *settings, "solo", "-n", unit, "true")
    guest.start(
        f"{unit}-third", *settings, "--remain-after-exit", "solo", "-n", unit, "--", *SERVICE, unit
    )
    until(
        lambda: (
            guest.show(f"{unit}-third", "SubState") != "running" or "overlap" in guest.read(unit)
        )
    )
    guest.run("systemctl", "kill", "--signal=KILL", f"{unit}-third")

    assert second == 75
    assert (guest.show(f"{unit}-third", "ExecMainStatus") == "75") == (preserve == "yes")
    assert ("overlap" in guest.read(unit)) == (preserve == "no")


# --- syslog, templates


def test_journald_gets_text_priority_and_pid_of_syslog(guest):
    script = (
        "solo --syslog -n logged -- sh -c 'exit 3'; "
        "solo -n logged -- solo --syslog -q -n logged true; "
        "solo --syslog -n logged -t 100ms sleep 9"
    )
    guest.run("sh", "-c", script)
    guest.do("journalctl", "--sync")

    journal = guest.do("journalctl", "--no-pager", "-t", "solo", "-o", "json").splitlines()
    entries = [entry for entry in map(json.loads, journal) if entry.get("SYSLOG_FACILITY") == "9"]

    texts = [re.sub(r"\d+", "N", entry["MESSAGE"]) for entry in entries]
    assert texts == [
        "logged: started sh -c exit N as pid N",
        "logged: pid N ended with exit status N after Ns",
        "not started: logged: held by pid N, an ancestor of this process: it would wait for itself",
        "logged: started sleep N as pid N",
        "logged: pid N timed out and ended by SIGTERM after Ns",
    ]
    assert [entry["PRIORITY"] for entry in entries] == ["6", "4", "4", "6", "4"]
    assert {(entry["SYSLOG_IDENTIFIER"], entry["SOLO_NAME"]) for entry in entries} == {
        ("solo", "logged")
    }
    assert {entry["SOLO_OUTCOME"] for entry in entries} >= {
        "running",
        "failed",
        "refused",
        "timed out",
    }
    assert all(entry["SYSLOG_PID"] == entry["_PID"] for entry in entries)


# --- notifications


NOTIFY = "echo start >>/lab/{0}; sleep {1}; echo $SOLO_OUTCOME $SOLO_STATUS >>/lab/{0}"


@pytest.mark.parametrize("kind", ["oneshot", "exec"])
@pytest.mark.parametrize("mode", ["control-group", "mixed"])
def test_main_process_of_a_unit_waits_for_the_notification(guest, unit, kind, mode):
    words = "solo", "--notify", NOTIFY.format(unit, 0.5), "-n", unit, "--", "sh", "-c", "exit 3"

    status, _ = guest.run_unit(unit, f"Type={kind}", f"KillMode={mode}", *words)

    assert (status, guest.read(unit)) == (3, ["start", "failed 3"])


@pytest.mark.parametrize("mode", ["control-group", "process"])
def test_notification_of_a_script_in_a_unit_needs_killmode_process(guest, unit, mode):
    seconds = 59 if mode == "control-group" else 0.5  # it does not end by itself before the unit
    solo = f"solo --notify '{NOTIFY.format(unit, seconds)}' -n {unit} sh -c 'exit 3'"
    script = f"{solo}; until grep start /lab/{unit}; do sleep 0.1; done; exit 4"

    status, _ = guest.run_unit(unit, f"KillMode={mode}", "sh", "-c", script)
    until(lambda: "unnotified" in guest.do("solo", "history", unit) or len(guest.read(unit)) == 2)

    assert status == 4
    assert guest.read(unit) == (["start"] if mode == "control-group" else ["start", "failed 3"])
    assert ("--notify ended by SIGTERM" in guest.do("solo", "history", unit)) == (
        mode == "control-group"
    )


def test_systemd_analyze_finds_no_fault_in_the_units(guest):
    names = [unit.name.replace("@.", "@example.") for unit in (*TEMPLATES, *UNITS.iterdir())]
    verify = ("systemd-analyze", "verify", "--man=no", "--recursive-errors=yes")

    result = guest.run(*verify, *(f"/etc/systemd/system/{name}" for name in names))

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    guest.do(
        "sh", "-c", "printf '[Service]\nExecStart=solo true\nNotifyAcces=all\n' >/run/typo.service"
    )
    assert "NotifyAcces" in guest.run(*verify, "/run/typo.service").stderr


@pytest.mark.parametrize("settings", ["User=alice", "ProtectSystem=full\nPrivateTmp=yes"])
def test_line_that_doctor_suggests_for_a_unit_has_the_same_effect(guest, unit, settings):
    """test_oracle.py compares many lines in a shell."""
    lock, path = f"/run/{unit}.lock", f"/run/systemd/system/{unit}.service"
    guest.do("install", "-m", "666", "/dev/null", lock)
    words = "/usr/bin/echo %n 'a  b' \"c;d\""

    def start(exec_start):
        (guest.lab / "a.service").write_text(f"[Service]\nType=oneshot\n{settings}\n{exec_start}\n")
        guest.do("cp", "/lab/a.service", path)
        guest.do("systemctl", "daemon-reload")
        guest.do("systemctl", "start", unit)

    start(f"ExecStart=/usr/bin/flock -n {lock} {words}")
    [row] = json.loads(guest.run("solo", "doctor", "--unit", "--json", path).stdout)
    start(row["use"])

    messages = guest.read_messages(unit)
    assert "solo -n run:" in row["use"] and messages == 2 * [f"{unit}.service a  b c;d"]


# Of units and drop-ins of services, below directories of systemd.
FILES = (
    "etc/job-a-b@.service run/job-a-b@.service etc/job-a-b.service run/job-c--.service lib/job-d.service run/service.d"
    " etc/job-a-b@i.service.d run/job-a-b@.service.d etc/job-a-.service.d run/job-.service.d lib/job-a-@i.service.d"
    " run/job-a-@.service.d run/job-@.service.d lib/job-a-b.service.d run/job-c--.service.d run/job-c-.service.d"
    " lib/job-d.service.d etc/job-alias.service.d etc/job-d.service.d lib/service.d"
).split()
SHOW = """
import json, sys
sys.path[:0] = ["/lab/source"]
from solo.commands.doctor.unit_files import read_services
print(json.dumps([[source.file for source in sources] for name in sys.argv[1:] for sources in read_services([name])]))
"""


def test_the_files_of_a_unit_are_those_that_systemd_has_read(guest):
    folders = {
        "etc": "/etc/systemd/system.control",
        "run": "/run/systemd/system",
        "lib": "/usr/lib/systemd/system",
    }
    for number, file in enumerate(FILES):
        path = guest.lab / "places" / file
        is_folder = file.endswith(".d")
        for one in [path / f"{number:02}-job.conf", path / "same.conf"] if is_folder else [path]:
            one.parent.mkdir(parents=True, exist_ok=True)
            one.write_text(
                "[Service]\n"
                + "Environment=JOB=1\n" * is_folder
                + "ExecStart=/bin/true\n" * (not is_folder)
            )
    (guest.lab / "places/etc/job-alias.service").symlink_to(f"{folders['lib']}/job-d.service")
    for place, folder in folders.items():
        guest.do("sh", "-c", f"mkdir -p {folder} && cp -a /lab/places/{place}/. {folder}")
    guest.do("systemctl", "daemon-reload")
    names = ["job-a-b@i", "job-a-b@other", "job-a-b", "job-c--", "job-d", "job-alias"]

    shown = [
        guest.do("systemctl", "show", "--property=FragmentPath,DropInPaths", one) for one in names
    ]
    found = [json.loads(guest.do("python3", "-c", SHOW, name))[0] for name in names]

    expected = [re.findall(r"/[^\s]*", text.replace("\n", " ")) for text in shown]
    assert all(len(files) > 4 for files in expected)
    for name, files, others in zip(names, found, expected):
        # Whose file counts, if aliases have files of one name, is chance.
        is_certain = [
            file for file in files[1:] if not (name in ("job-d", "job-alias") and "same" in file)
        ]
        assert is_certain == others[1 : len(is_certain) + 1] and len(files) == len(others)
    real = [guest.do("realpath", files[0]) for files in found]
    assert real == [guest.do("realpath", files[0]) for files in expected]


ADVISED = {  # the settings of two units of one name
    "dynamic": ["DynamicUser=yes", "DynamicUser=yes"],
    "dynamic-user": ["DynamicUser=yes\nUser=etl", "DynamicUser=yes\nUser=etl"],
    "home": ["User=bob\nProtectHome=yes", "User=bob\nProtectHome=tmpfs"],
    "home-read-only": ["User=bob", "User=bob\nProtectHome=read-only"],
    "strict": ["ProtectSystem=strict", ""],
    "strict-asked": [
        f"ProtectSystem={value}\nEnvironment=SOLO_DIR=/var/names" for value in ("strict", "no")
    ],
}


@pytest.mark.parametrize("case", ADVISED)
def test_units_with_the_settings_that_doctor_suggests_exclude_each_other(guest, unit, case):
    system, names = "/run/systemd/system", [f"{unit}-{letter}" for letter in "ab"]
    files = [f"{system}/{name}.service" for name in names]
    guest.make_log(unit)
    for name, settings in zip(names, ADVISED[case]):
        exec_start = f"SuccessExitStatus=75\nReadWritePaths=/lab\nExecStart=solo -n {case} -- {shlex.join(SERVICE)} {unit}"
        (guest.lab / f"{name}.service").write_text(f"[Service]\n{settings}\n{exec_start}\n")
        guest.do("cp", f"/lab/{name}.service", system)
    rows = json.loads(guest.run("solo", "doctor", "--unit", "--json", *files).stdout)

    for row in rows:
        [advice] = [
            one["text"].rpartition(" (")[2] for one in row["findings"] if one["state"] == "fails"
        ]
        command = advice.rstrip(")").partition("; first: ")[2]
        guest.do(
            "sh",
            "-c",
            f"{command or ':'}; printf '%s\n' {' '.join(SET.findall(advice))} >>{row['file']}",
        )
    left = json.loads(guest.run("solo", "doctor", "--unit", "--json", *files).stdout)
    guest.do("systemctl", "daemon-reload")
    guest.do("systemctl", "start", names[0])
    guest.wait_line(unit, "start")
    guest.run("systemctl", "start", names[1])
    guest.wait_state(names[1], "inactive")
    guest.do("systemctl", "stop", names[0])

    assert rows and not left, left
    assert f"solo: {case}: busy: held for" in "".join(guest.read_messages(names[1]))
    assert read_events(guest, unit).count("start") == 1 and "overlap" not in read_events(
        guest, unit
    )


def install(guest, name, script):
    """Create a job for the templates to run."""
    path = guest.lab / f"{name}.job"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    guest.do("cp", f"/lab/{name}.job", f"/etc/solo/{name}")


@pytest.mark.parametrize("template", ["solo", "solo-dynamic"])
def test_job_template_runs_the_job_or_skips(guest, template):
    name = f"{template}-job"
    job = f"{template}@{name}"
    place = []
    if template == "solo-dynamic":
        place = ["DynamicUser=yes", f"User=solo-{name}", f"RuntimeDirectory=solo-{name}"]
        place += ["RuntimeDirectoryPreserve=yes", f"--setenv=SOLO_DIR=/run/solo-{name}"]
    install(guest, name, f"echo ran $SOLO_NAME; until [ -e /lab/{name}.go ]; do sleep 0.1; done")
    guest.do("systemctl", "start", "--no-block", job)
    until(lambda: guest.read_messages(job))

    skip, _ = guest.run_unit(f"{name}-skip", *place, "solo", "-n", name, "true")
    (guest.lab / f"{name}.go").touch()
    guest.wait_state(job, "inactive")
    again = guest.run("systemctl", "start", job)

    assert skip == 75 and again.returncode == 0 and guest.read_messages(job) == [f"ran {name}"] * 2


def test_drop_in_guards_a_unit_of_a_package(guest):
    """Also one with ProtectSystem=strict."""
    system = "/run/systemd/system"
    shutil.copytree(ROOT / "examples/systemd", guest.lab / "examples")
    (guest.lab / "backup.sh").write_text(
        "#!/bin/sh\necho ran; until [ -e /lab/backup.go ]; do sleep 0.1; done\n"
    )
    guest.do(
        "sh",
        "-c",
        f"install /lab/backup.sh /usr/local/bin; cp -r /lab/examples/backup.service* {system}",
    )
    guest.do("systemctl", "daemon-reload")
    guest.do("systemctl", "start", "--no-block", "backup")
    until(lambda: guest.read_messages("backup"))

    assert guest.run("solo", "-n", "backup", "true").returncode == 75
    (guest.lab / "backup.go").touch()
    guest.wait_state("backup", "inactive")
    assert guest.run("sh", "-c", "solo -n backup systemctl start backup").returncode == 0
    assert len(guest.read_messages("backup")) == 2  # the run and the message of the skip


def test_doctor_judges_a_drop_in_with_the_settings_of_its_unit(guest):
    """As examples/systemd/backup.service.d/solo.conf promises. doctor says in advance how the unit
    ends.
    """
    unit, folder = "/usr/lib/systemd/system/vendor.service", "/run/systemd/system/vendor.service.d"
    settings = (
        (ROOT / "examples/systemd/backup.service.d/solo.conf")
        .read_text()
        .partition("# For a unit with")[2]
    )
    guest.do(
        "sh",
        "-c",
        f"printf '[Service]\nType=oneshot\nProtectSystem=strict\nExecStart=/bin/true\n' >{unit}",
    )
    guest.do("mkdir", folder)
    ends = []
    for more in ("", settings.partition("\n")[2]):
        guard = f"[Service]\nExecStart=\nExecStart=solo -n vendor -- /bin/echo ran\nSuccessExitStatus=75\n{more}"
        (guest.lab / "solo.conf").write_text(guard)
        guest.do("cp", "/lab/solo.conf", folder)
        guest.do("systemctl", "daemon-reload")
        said = [
            guest.run("solo", "doctor", "--unit", one)
            for one in ("vendor", f"{folder}/solo.conf", unit)
        ]
        ends.append(
            (guest.run("systemctl", "start", "vendor").returncode, [one.returncode for one in said])
        )

    assert ends == [(1, [1, 1, 1]), (0, [0, 0, 0])]
    assert "ran" in guest.read_messages("vendor") and all("1 command" in one.stdout for one in said)


def start_now(guest, name):
    """Start a timer whose service is then due at once."""
    folder = f"/run/systemd/system/{name}.timer.d"
    settings = r"[Timer]\nRandomizedDelaySec=0\nOnActiveSec=0\n"
    guest.do("sh", "-c", f"mkdir -p {folder} && printf '{settings}' >{folder}/now.conf")
    guest.do("systemctl", "daemon-reload")
    guest.do("systemctl", "start", f"{name}.timer")


def test_clean_timer_removes_only_idle_names_made_from_commands(guest, unit):
    for words in (["-n", "chosen"], ["-n", "chosen-too"], []):
        guest.do("solo", *words, "true")
    guest.start(unit, "solo", "sh", "-c", f"echo start >/lab/{unit}; sleep 600")
    guest.wait_line(unit, "start")
    guest.do(
        "sh",
        "-c",
        "touch -d '40 days ago' /var/lib/solo/true-*/.journal /var/lib/solo/chosen/.journal",
    )
    # The names of the words as typed, which have a history, and of the programs' real paths.
    [idle, used] = guest.do("sh", "-c", "cd /var/lib/solo; ls -d true-* sh-* | sort -r").split()
    [other] = {*guest.do("sh", "-c", "cd /run/solo; ls -d true-*").split()} - {idle}
    is_enabled = guest.run("systemctl", "is-enabled", "solo-clean.timer").stdout
    start_now(guest, "solo-clean")

    until(lambda: "removed" in "".join(guest.read_messages("solo-clean")))
    guest.wait_state("solo-clean", "inactive")

    assert is_enabled == "disabled\n" and guest.show("solo-clean", "Result") == "success"
    removed = [f"{idle}: history removed", f"{idle}: removed", f"{other}: removed"]
    assert sorted(guest.read_messages("solo-clean")) == sorted(removed)
    for folder in ("/run/solo", "/var/lib/solo"):
        assert {"chosen", "chosen-too", used} <= set(guest.do("ls", folder).split())


def test_daemon_template_is_active_once_the_daemon_is_ready(guest):
    install(guest, "worker", f"exec {shlex.join(SERVICE)} worker")
    guest.do("systemctl", "start", "solo-daemon@worker")
    events = read_events(guest, "worker")

    guest.do("systemctl", "stop", "solo-daemon@worker")

    assert events == ["start"] and read_events(guest, "worker") == ["start", "SIGTERM", "end"]
