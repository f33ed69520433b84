"""doctor --unit against a booted systemd: its verdicts by units drawn at random, each started with
and without solo, and its advice by pasting it.

tests/homes/test_systemd.py starts what doctor suggests for two units of one name.
"""

import json
import re
import socket
from random import Random

import pytest
import tally
from conftest import until
from guest import booted

from solo.commands.doctor.sandbox import CALLS, SPARED

pytestmark = [
    pytest.mark.long,
    pytest.mark.full,
    pytest.mark.root,
    pytest.mark.network,
    pytest.mark.tool("debootstrap", "systemd-nspawn", "nsenter"),
]

FOLDER = "/run/systemd/system"
PLACES = "/run/solo /srv/names /root/names /home/alice/names /var/tmp/names /etc/names".split()
PATHS = [
    *PLACES,
    *"/ /run /srv /root /home /home/alice /var /tmp /usr /usr/local /etc /proc /dev /lab".split(),
]
# A setting in a message; the words of some are separated by blanks.
SET = re.compile(r"SystemCallFilter=[a-z0-9_ ]+|[A-Z]\w+=[^\s,;)]+(?: /[^\s,;)]+)*")


@pytest.fixture(scope="module")
def guest(tmp_path_factory):
    lab = tmp_path_factory.mktemp("guest")
    lab.chmod(0o755)
    with booted(lab) as guest:
        guest.do("useradd", "--create-home", "--uid=1000", "alice")
        guest.do("install", "-d", "-m", "700", *PLACES)
        guest.do("chown", "alice:", "/home/alice/names")
        guest.do("install", "-d", "-m", "700", "-o", "33", "/var/lib/solo-users/33")
        yield guest


def list_groups(guest):
    """Return {group of system calls: its calls, also those of the groups in it}."""
    groups, group = {}, set()
    for text in guest.do("systemd-analyze", "syscall-filter").splitlines():
        if text[:1] == "@":
            group = groups[text] = set()
        elif text[:1] == " " and "#" not in text:
            group.add(text.strip())

    def expand(words):
        return set().union(*(expand(groups[word]) if word in groups else {word} for word in words))

    return {group: expand(words) for group, words in groups.items()}


def test_the_system_calls_of_a_run_are_in_the_groups_of_systemd(guest):
    used = {call for calls in CALLS.values() for call in calls.split()}
    groups = list_groups(guest)
    named = {group: " ".join(sorted(calls & used)) for group, calls in groups.items()}
    for group in ("@known", "@system-service"):
        assert groups.pop(group, used) >= used and named.pop(group, None) != ""
    loose = used.difference(*groups.values())

    found = {group: calls for group, calls in named.items() if calls}
    assert {**found, "": " ".join(sorted(loose))} == {
        group: " ".join(sorted(calls.split())) for group, calls in CALLS.items()
    }
    assert SPARED < used


def draw_value(rng, key, number):
    """Return a value of a setting, chosen at random."""
    values = VALUES.get(key, "")
    if key == "SystemCallFilter":
        sign = rng.choice(["~", "~", ""])
        words = [*CALLS, *" ".join(CALLS.values()).split(), *"@privileged @mount @clock".split()]
        chosen = rng.sample([word for word in words if word], rng.randint(1, 2))
        return sign + " ".join(chosen if sign else ["@system-service", *chosen])
    if key == "TemporaryFileSystem":
        return rng.choice(PATHS) + rng.choice(["", ":ro", ":ro,mode=700"])
    if key == "Environment":
        return f"SOLO_DIR={rng.choice([*PLACES, f'/run/own-{number}'])}"
    if key.endswith("Directory"):
        return f"own-{number}"
    if key.endswith("Paths"):
        if key[:4] == "Bind" and rng.randrange(4) == 0:
            return f"{rng.choice(PATHS)}:{rng.choice(PATHS)}"
        return " ".join(
            rng.choice(["", "-"]) + path for path in rng.sample(PATHS, rng.randint(1, 3))
        )
    return rng.choice(values.split())


# Without ProtectProc=, ProtectKernelTunables= and ProtectControlGroups=: with them systemd 257 leaves
# /run writable below nspawn.
VALUES = {
    "User": "alice www-data root",
    "DynamicUser": "yes no",
    "ProtectSystem": "yes full strict strict",
    "ProtectHome": "yes read-only tmpfs no",
    "PrivateTmp": "yes no",
    "ProcSubset": "pid all",
    "SystemCallErrorNumber": "EPERM kill",
    "MemoryDenyWriteExecute": "yes",
    "PrivateUsers": "yes",
    "PrivateNetwork": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "CapabilityBoundingSet": "CAP_CHOWN",
    "UMask": "0777 0022",
    "LimitFSIZE": "0 1K 1G",
    "LimitDATA": "2M 20M",
    "LimitNOFILE": "5 30",
    "RestrictAddressFamilies": "AF_INET AF_UNIX none",
    "DevicePolicy": "strict closed",
}
DRAWN = [*VALUES, *"Environment RuntimeDirectory StateDirectory SystemCallFilter".split()]
DRAWN += (
    2
    * (
        "ReadOnlyPaths ReadWritePaths InaccessiblePaths NoExecPaths ExecPaths BindPaths "
        "BindReadOnlyPaths TemporaryFileSystem"
    ).split()
)


def draw(rng, number):
    """Return the settings of a unit, in lines."""
    keys = rng.choices(DRAWN, k=rng.randint(1, 4))
    return "".join(f"{key}={draw_value(rng, key, number)}\n" for key in keys)


def put(guest, files):
    """Write {name: text of the section Service} as units."""
    folder = guest.lab / "put"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{'' if text[0] == '[' else '[Service]'}\n{text}\n")
    guest.do("sh", "-c", f"mv /lab/put/* {FOLDER} && systemctl daemon-reload")
    return [f"{FOLDER}/{name}" for name in files]


def judge(guest, files):
    """Return what doctor says of each of the files."""
    found = {file: [] for file in files}
    for row in json.loads(guest.run("solo", "doctor", "--unit", "--json", *files).stdout):
        found[row["file"]] += row["findings"]
    return list(found.values())


def try_units(guest, every, part="", options=""):
    """Yield (settings, whether the unit runs, whether it does with solo, findings)."""
    names = [f"{kind}-{at}.service" for kind in ("bare", "solo") for at in range(len(every))]
    ran = [
        f"ExecStart={words}"
        for words in ("/usr/bin/true", f"/usr/local/bin/solo -n {{}} {options} -- /usr/bin/true")
    ]
    texts = [
        f"Type=oneshot\n{one}{line.format(f'{part}-{at}')}"
        for line in ran
        for at, one in enumerate(every)
    ]
    files = put(guest, dict(zip(names, texts)))
    said = judge(guest, files[len(every) :])
    guest.run("systemctl", "start", *names)
    ends = [guest.show(name, "Result") == "success" for name in names]
    guest.run("systemctl", "reset-failed")
    yield from zip(every, ends, ends[len(every) :], said)


def compare(tried):
    """Return the units of which doctor was wrong, and {verdict: how many were right}."""
    wrong, right = [], {"fails": 0, "runs": 0}
    for settings, runs_alone, runs, findings in tried:
        fails = any(one["state"] == "fails" for one in findings)
        is_certain = not any(one["check"] == "unit" for one in findings)
        if runs if fails else runs_alone and not runs and is_certain:
            wrong.append((settings, runs, [one["text"] for one in findings]))
        elif runs_alone:
            right["fails" if fails else "runs"] += 1
    return wrong, right


# What draws have found.
FOUND = [
    "NoExecPaths=/\nReadOnlyPaths=/usr\nExecPaths=/lab\n",  # the deepest alone counts
    "ReadOnlyPaths=/\nNoExecPaths=/run\n",
    "ProcSubset=pid\nBindReadOnlyPaths=/proc\n",
    "ProcSubset=pid\nReadWritePaths=/proc\n",
    "ProtectHome=tmpfs\nReadWritePaths=/root\nEnvironment=SOLO_DIR=/root/names\n",
    "ReadOnlyPaths=/run/solo\nReadWritePaths=/run\n",
    "TemporaryFileSystem=/:ro\nBindReadOnlyPaths=/usr /lib /lib64 /bin /lab\n",
    "SystemCallFilter=~uname:EPERM\n",
    "SystemCallFilter=~@process\nSystemCallFilter=@process\n",
    "User=alice\nInaccessiblePaths=/etc\n",  # a user's home is that of /etc/passwd
    "User=alice\nTemporaryFileSystem=/etc\nEnvironment=SOLO_DIR=/home/alice/names\n",
    "User=alice\nInaccessiblePaths=/var\n",  # may hide a directory that root made
    "User=alice\nTemporaryFileSystem=/var\n",
    "LimitFSIZE=0\n",
    "LimitDATA=2M\n",
    "SystemCallFilter=~sysinfo\n",
    "SystemCallFilter=~fstat\n",
    "SystemCallFilter=~@network-io\n",
    "SystemCallFilter=~prctl\n",
    "RestrictAddressFamilies=AF_INET\n",  # systemd allows socketpair(2)
    "SystemCallFilter=~@ipc:EPERM\nSystemCallFilter=pipe2\n",
]
OPTIONS = ["", "--tree", "--capture keep", "--wait 1"]


@pytest.mark.parametrize("options", OPTIONS)
def test_what_draws_have_found_is_right_now(guest, options):
    wrong, right = compare(try_units(guest, FOUND, f"found{OPTIONS.index(options)}", options))

    assert not wrong and min(right.values()) > 1


@pytest.mark.rare
@pytest.mark.parametrize("part, options", list(enumerate(OPTIONS)))
def test_a_unit_runs_with_solo_unless_doctor_says_that_it_fails(guest, part, options):
    rng = Random(f"{tally.SEED} {part}")
    wrong, right = compare(try_units(guest, [draw(rng, at) for at in range(60)], part, options))

    assert not wrong, "\n".join(map(str, wrong))
    assert min(right.values()) > 5, right


# --- the advice, pasted into the unit


def paste(guest, file, findings):
    """Do what the findings advise, in their brackets."""
    for text in [one["text"] for one in findings]:
        advice = text.partition(" (")[2].rstrip(")")
        command = advice.partition("; first: ")[2] or ":"
        script = f"{command}; printf '%s\n' {' '.join(map(repr, SET.findall(advice)))} >>{file}"
        if "--wait forever" in advice:
            script += f"; sed -i 's|/solo|& --wait forever|' {file}"
        if "instead of -E 0" in advice:
            script += f"; sed -i 's/ -E 0//' {file}"
        if "empty ExecStart=" in advice:
            script += f"; sed -i 's/^ExecStart=.*solo/ExecStart=\\n&/' {file}"
        guest.do("sh", "-c", script)
    guest.do("systemctl", "daemon-reload")


def hold(guest, name):
    guest.start(f"{name}-holder", "solo", "-n", name, "sleep", "600")
    wait_held(guest, name)


def wait_held(guest, name):
    """Wait until a name is held, without a contender that the holder could meet."""
    until(lambda: guest.run("solo", "list", "-0", name).stdout)


def end(guest, unit):
    """Start a unit; return (its result, whether systemd started it again)."""
    guest.run("systemctl", "start", unit)
    guest.wait_state(unit, "inactive", "failed")
    restarts = guest.show(unit, "NRestarts")
    return guest.show(unit, "Result"), restarts != "0"


LIMIT = "[Unit]\nStartLimitIntervalSec=1h\n[Service]\n"  # a slow machine reaches it too
AGAIN = "Restart=always\nRestartSec=0\n"
SKIPS = {
    # Of a unit whose name is held: its settings, an option of solo, its end before and after.
    "status": ("", "", ("exit-code", False), ("success", False)),
    "another status": ("", "-E 9 ", ("exit-code", False), ("success", False)),
    "restart": (AGAIN, "", ("exit-code", True), ("success", False)),
    "restart after a success": (
        AGAIN + "SuccessExitStatus=75\n",
        "",
        ("exit-code", True),
        ("success", False),
    ),
    "restart of status 0": (AGAIN, "-E 0 ", ("success", True), ("success", False)),
    "restart on success": (
        "Restart=on-success\nRestartSec=0\n",
        "-E 0 ",
        ("success", True),
        ("success", False),
    ),
}


@pytest.mark.parametrize("case", SKIPS)
def test_advice_for_a_skip_ends_the_unit_well_and_once(guest, case):
    settings, option, before, after = SKIPS[case]
    unit = f"skip-{case.replace(' ', '-')}"
    hold(guest, unit)
    text = f"{LIMIT}Type=exec\n{settings}ExecStart=/usr/local/bin/solo {option}-n {unit} -- /usr/bin/true"
    [file] = put(guest, {f"{unit}.service": text})
    first = end(guest, unit)
    guest.run("systemctl", "reset-failed", unit)

    [said] = judge(guest, [file])
    paste(guest, file, said)
    [left] = judge(guest, [file])
    second = end(guest, unit)
    guest.run("systemctl", "stop", f"{unit}-holder")

    assert said and not left, left
    assert (first[1], second) == (before[1], after)
    assert first[0] == before[0] or first[1]


def test_advice_for_a_socket_serves_the_connection_once_the_name_is_free(guest):
    hold(guest, "front")
    words = "ExecStart=/usr/local/bin/solo -E 0 -n front -- /usr/bin/python3 /lab/service.py front"
    guest.make_log("front")
    file, _ = put(
        guest,
        {
            "front.service": LIMIT + words,
            "front.socket": "[Socket]\nListenStream=/run/front.sock\nFileDescriptorName=front\n",
        },
    )

    def connect():
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"/proc/{guest.leader}/root/run/front.sock")
        return client

    guest.do("systemctl", "start", "front.socket")
    with connect():
        guest.wait_state("front.socket", "failed")
    guest.run("systemctl", "reset-failed", "front.socket", "front.service")

    [said] = judge(guest, [file])
    paste(guest, file, said)
    [left] = judge(guest, [file])
    guest.do("systemctl", "start", "front.socket")
    with connect() as client:
        guest.wait_state("front.service", "active")
        state = guest.show("front.socket", "ActiveState")
        guest.do("systemctl", "stop", "front-holder")
        answer = client.makefile().readline()
    guest.do("systemctl", "stop", "front.socket", "front.service")

    assert [one["check"] for one in said] == ["socket"] and not left
    assert state == "active" and answer.split()[1] == "front"


RUNS = {
    # Settings of a unit that does not run with solo, and the job.
    "strict": ("ProtectSystem=strict\n", "/usr/bin/true"),
    "read-only": ("ReadOnlyPaths=/\n", "/usr/bin/true"),
    "read-only place": ("ReadOnlyPaths=/srv\nEnvironment=SOLO_DIR=/srv/names\n", "/usr/bin/true"),
    "temporary": ("TemporaryFileSystem=/run:ro\n", "/usr/bin/true"),
    "hidden program": ("TemporaryFileSystem=/usr/local\n", "/usr/bin/true"),
    "hidden proc": ("TemporaryFileSystem=/proc\n", "/usr/bin/true"),
    "no execution": ("NoExecPaths=/usr/local\n", "/usr/bin/true"),
    "call": ("SystemCallFilter=~uname @ipc\n", "/usr/bin/true"),
    "calls": (
        "SystemCallFilter=@basic-io @file-system @process @signal ioctl uname flock pipe2 umask\n"
        "SystemCallFilter=~readlink\n",
        "/usr/bin/true",
    ),
    "home": ("User=alice\nProtectHome=yes\n", "/usr/bin/true"),
    "read-only home": ("User=alice\nProtectHome=read-only\n", "/usr/bin/true"),
    "dynamic": ("DynamicUser=yes\n", "/usr/bin/true"),
    "notify": ("Type=notify\nTimeoutStartSec=1s\n", "/usr/bin/python3 /lab/service.py told"),
    "second": ("Type=exec\nExecStart=/usr/bin/false\n", "/usr/bin/true"),
}


@pytest.mark.parametrize("case", RUNS)
def test_advice_for_a_unit_that_fails_makes_it_run(guest, case):
    settings, job = RUNS[case]
    unit = f"run-{case.replace(' ', '-')}"
    guest.make_log("told")
    kind = "" if "Type" in settings else "Type=oneshot\n"
    text = f"{kind}SuccessExitStatus=75\n{settings}ExecStart=/usr/local/bin/solo -n {unit} -- {job}"
    [file] = put(guest, {f"{unit}.service": text})
    before = guest.run("systemctl", "start", unit).returncode

    [said] = judge(guest, [file])
    paste(guest, file, [one for one in said if one["state"] == "fails"])
    [left] = judge(guest, [file])
    after = guest.run("systemctl", "start", unit).returncode
    guest.run("systemctl", "stop", unit)

    assert before and any(one["state"] == "fails" for one in said)
    assert not [one["text"] for one in left if one["state"] == "fails"]
    assert after == 0, guest.read_messages(unit)


def test_with_type_forking_the_lock_ends_early_and_with_the_advised_type_it_does_not(guest):
    text = (
        "{}ExecStart=/usr/local/bin/solo -n fork -- /bin/sh -c '{}/usr/bin/sleep 600{}'\n"
        "SuccessExitStatus=75"
    )
    [file] = put(guest, {"fork.service": text.format("Type=forking\n", "", " &")})
    guest.do("systemctl", "start", "fork")
    early = guest.run("solo", "-n", "fork", "true").returncode
    [said] = judge(guest, [file])
    guest.do("systemctl", "stop", "fork")

    put(guest, {"fork.service": text.format("Type=forking\n", "exec ", "")})
    paste(guest, file, said)
    guest.do("systemctl", "start", "fork")
    wait_held(guest, "fork")
    guest.do("systemctl", "stop", "fork")

    assert early == 0 and [one["check"] for one in said] == ["unit"]


def test_a_missing_command_is_a_started_unit_of_type_exec(guest):
    text = "Type=exec\nSuccessExitStatus=75\nExecStart=/usr/local/bin/solo -n missing -- nosuch"
    [file] = put(guest, {"missing.service": text})
    [said] = judge(guest, [file])
    status = guest.run("systemctl", "start", "missing").returncode
    guest.wait_state("missing", "failed")

    assert "systemd takes the start as a success" in said[0]["text"]
    assert (status, guest.show("missing", "ExecMainStatus")) == (0, "127")


def test_the_line_to_use_keeps_the_silence_of_an_exec_condition(guest):
    text = (
        "Type=oneshot\nExecCondition=/usr/bin/flock -n {0} /usr/bin/true\n"
        "ExecStart=/usr/bin/flock -n {0} /usr/bin/echo ran"
    ).format("/srv/condition.lock")
    [file] = put(guest, {"condition.service": text})
    guest.do("touch", "/srv/condition.lock")
    [row] = json.loads(guest.run("solo", "doctor", "--unit", "--json", file).stdout)
    guest.do("sed", "-i", f"s|^ExecStart=.*|{row['use']}|", file)
    guest.do("systemctl", "daemon-reload")
    ran = guest.run("systemctl", "start", "condition").returncode

    guest.start("condition-holder", "flock", "/srv/condition.lock", "sleep", "600")
    until(lambda: guest.run("flock", "-n", "/srv/condition.lock", "true").returncode == 1)
    skipped = guest.run("systemctl", "start", "condition").returncode
    guest.do("systemctl", "stop", "condition-holder")

    assert "--flock /srv/condition.lock" in row["use"]
    assert (ran, skipped) == (0, 0)
    assert guest.read_messages("condition") == ["ran"]


def test_the_journal_calls_a_job_by_the_identifier_that_is_set(guest):
    named = "SyslogIdentifier=job.sh\n"
    for unit, setting in (("plain", ""), ("named", named)):
        text = f"Type=oneshot\n{setting}ExecStart=/usr/local/bin/solo -n {unit} -- /usr/bin/echo x"
        put(guest, {f"log-{unit}.service": text})
        guest.do("systemctl", "start", f"log-{unit}")
    guest.do("journalctl", "--sync")

    words = "journalctl --no-pager -o json-pretty --output-fields=SYSLOG_IDENTIFIER -u".split()
    texts = [guest.do(*words, f"log-{unit}") for unit in ("plain", "named")]
    assert '"solo"' in texts[0] and '"job.sh"' in texts[1] and '"solo"' not in texts[1]
