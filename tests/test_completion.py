"""TAB in real shells: the offered words. No text in a name is ever executed."""

import shutil
import subprocess

import pytest
from conftest import ROOT

COMPLETIONS = ROOT / "packaging/completions"
READY = "echo rea''dy\n"


@pytest.fixture
def trap(lab):
    """Hold a name whose text creates a file if a shell runs it. Return (name, file)."""
    name = f"build/x$(touch${{IFS}}{lab.path}/pwned)`touch {lab.path}/pwned`"
    lab.hold(name)
    return name, lab.path / "pwned"


@pytest.fixture
def shell(terminal, lab):
    """Start bash, zsh or fish on a terminal, with solo on its PATH and its completion loaded."""
    (lab.path / "bin").mkdir()
    (lab.path / "bin/solo").symlink_to(lab.script)
    lab.environment.update(SOLO_VIA="file", HOME=str(lab.path), INPUTRC="/dev/null")
    lab.environment["PATH"] = f"{lab.path}/bin:{lab.environment['PATH']}"

    def open_shell(name):
        file = lab.path / ("_solo" if name == "zsh" else f"solo.{name}")
        shutil.copy(COMPLETIONS / file.name, file)
        words, start = {
            "bash": (
                ["bash", "--norc", "--noprofile", "-i"],
                f"bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'; source {file}; ",
            ),
            "zsh": (
                ["zsh", "-f"],
                f"fpath=({lab.path} $fpath); autoload -Uz compinit; compinit -u -d {lab.path}/dump; "
                "unsetopt zle_bracketed_paste; ",
            ),
            "fish": (["fish", "--no-config"], f"source {file}; "),
        }[name]
        screen = terminal(*words)
        screen.type(start + READY)
        screen.wait_for("\nready")
        return screen

    return open_shell


NAMES = [
    "two words",
    "tab\there",
    "new\nline",
    "quote'\"d",
    "a:b=c",
    "dollar$HOME",
    "paren(s)",
    "back\\slash",
    "star*",
    "semi;ls",
    "bang!x",
]


@pytest.mark.tool("zsh")
@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_tab_never_runs_shell_text_in_a_name(shell, trap, kind):
    screen = shell(kind)

    for typed in ("solo show bui\t", "solo wait 'bui\t", 'solo stop "bui\t', "solo -n bui\t", "solo --name=bui\t"):
        start = len(screen.screen)
        screen.type(typed)
        screen.wait_for("pwned", after=start)
        screen.type("\x15")
    screen.type("echo do''ne\n")
    screen.wait_for("\ndone")

    assert not trap[1].exists()


def complete_in_fish(lab, typed):
    """Return the words that fish offers after `typed`."""
    script = COMPLETIONS / "solo.fish"
    (lab.path / "bin").mkdir()
    (lab.path / "bin/solo").symlink_to(lab.script)
    path = f"{lab.path}/bin:{lab.environment['PATH']}"

    result = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C '{typed}'"],
        capture_output=True,
        text=True,
        env={**lab.environment, "SOLO_VIA": "file", "HOME": str(lab.path), "PATH": path},
    )

    assert result.stderr == ""
    return [line.split("\t")[0] for line in result.stdout.splitlines()]


@pytest.mark.tool("fish")
@pytest.mark.parametrize("typed", ["solo show bui", "solo -n bui"])
def test_fish_offers_a_name_with_shell_text_without_running_it(lab, trap, typed):
    assert complete_in_fish(lab, typed) == [trap[0]]
    assert not trap[1].exists()


@pytest.mark.tool("fish")
def test_fish_offers_no_part_of_a_name_with_a_newline_or_tab(lab):
    for name in ("new\nline", "tab\tulator", "name"):
        lab.hold_old(name)

    assert complete_in_fish(lab, "solo show ") == ["name"]


@pytest.mark.tool("fish")
@pytest.mark.parametrize(
    "typed, expected",
    [
        ("solo --wa", {"--wait"}),
        ("solo li", {"list"}),
        ("solo list --j", {"--json"}),
        ("solo wait ", {"deploy/prod", "nightly"}),
        ("solo stop n", {"nightly"}),
        ("solo -n ", {"deploy/prod", "nightly"}),
        ("solo -q --name n", {"nightly"}),
    ],
)
def test_fish_completes_names_options_and_subcommands(lab, typed, expected):
    lab.hold("nightly")
    lab.hold("deploy/prod")

    assert expected <= set(complete_in_fish(lab, typed))


@pytest.mark.tool("zsh")
@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_a_completed_name_is_quoted_for_the_shell(lab, shell, kind):
    for name in NAMES:
        lab.hold_old(name)
    screen = shell(kind)

    for number, name in enumerate(NAMES):
        start = len(screen.screen)
        screen.type(f"solo list --null {name[:3]}\t")
        screen.type(f" >{lab.path}/out{number}; echo status $?\n")
        screen.wait_for("\nstatus 0", after=start)

    assert [(lab.path / f"out{number}").read_text() for number in range(len(NAMES))] == [f"{name}\0" for name in NAMES]


@pytest.mark.tool("zsh")
@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_tab_completes_names_options_values_and_subcommands(lab, shell, kind):
    lab.hold("nightly")
    screen = shell(kind)

    for typed, expected in (
        ("solo wait nigh\t", "solo wait nightly"),
        ("solo -q --name nigh\t", "solo -q --name nightly"),
        ("solo docto\t", "solo doctor"),
        ("solo --max-w\t", "solo --max-waiting"),
        ("solo --via so\t", "solo --via socket"),
        ("solo stop --waiti\t", "solo stop --waiting"),
        ("solo --name=nigh\t", "solo --name=nightly"),
    ):
        screen.type(typed)
        screen.wait_for(expected)
        screen.type("\x15")

    assert b"not found" not in screen.screen


def test_bash_completes_a_command_and_its_files_without_bash_completion(lab, shell):
    (lab.path / "unusual-file").touch()
    screen = shell("bash")

    screen.type("solo -n x -- mktem\t")
    screen.wait_for("mktemp")
    screen.type(f" {lab.path}/unus\t")
    screen.wait_for("unusual-file")

    assert b"not found" not in screen.screen


@pytest.mark.tool("zsh")
@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_tab_after_solo_offers_subcommands_and_no_programs(shell, kind):
    screen = shell(kind)

    screen.type("solo \t\t")
    screen.wait_for("doctor")
    screen.type("\x15echo do''ne\n")
    screen.wait_for("\ndone")

    assert b"history" in screen.screen and b"mktemp" not in screen.screen


@pytest.mark.tool("zsh")
@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_names_are_not_offered_as_the_value_of_since(lab, shell, kind):
    lab.hold("nightly")
    screen = shell(kind)

    screen.type("solo history --since \t")
    screen.type("1d nigh\t")
    screen.wait_for("1d nightly")


def test_list_null_prints_each_name_once_ended_by_nul(lab):
    lab.hold_old("new\nline")
    for name in ("b", "a/c"):
        lab.hold(name)
    lab.start("-n", "b", "-w", "forever", "true")

    assert sorted(lab.run("list", "--null", "--via", "file").stdout.split(b"\0")) == [b"", b"a/c", b"b", b"new\nline"]
