"""TAB in real shells: the offered words. No text in a name is ever executed."""

import shutil

import pytest
from conftest import ROOT, finish

COMPLETIONS = ROOT / "packaging/completions"
READY = "echo rea''dy\n"
IN_BOTH = pytest.mark.parametrize(
    "kind", ["bash", pytest.param("zsh", marks=pytest.mark.tool("zsh"))]
)


@pytest.fixture
def trap(lab):
    """Hold a name whose text creates a file if a shell runs it. Return (name, file)."""
    name = f"build/x$(touch${{IFS}}{lab.path}/pwned)`touch {lab.path}/pwned`"
    lab.hold(name)
    return name, lab.path / "pwned"


@pytest.fixture
def home(lab):
    """The lab's environment, with solo on its PATH."""
    (lab.path / "bin").mkdir()
    (lab.path / "bin/solo").symlink_to(lab.script)
    lab.environment.update(SOLO_VIA="file", HOME=str(lab.path), INPUTRC="/dev/null")
    lab.environment["PATH"] = f"{lab.path}/bin:{lab.environment['PATH']}"


# How bash and zsh load a completion from the directory {0}.
STARTS = {
    "bash": "bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'; source {0}/solo.bash",
    "zsh": "fpath=({0} $fpath); autoload -Uz compinit; compinit -u -d {0}/dump; unsetopt zle_bracketed_paste",
}


@pytest.fixture
def shell(terminal, lab, home):
    """Start bash or zsh on a terminal, with its completion loaded."""

    def open_shell(name):
        shutil.copy(COMPLETIONS / ("_solo" if name == "zsh" else "solo.bash"), lab.path)
        screen = terminal(
            *{"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f"]}[name]
        )
        screen.type(f"{STARTS[name].format(lab.path)}; {READY}")
        screen.wait_for("\nready")
        return screen

    return open_shell


NAMES = ["two words", "tab\there", "new\nline", "quote'\"d$HOME", "a:b=c(s)", "back\\slash*;ls!x"]


@IN_BOTH
def test_tab_never_runs_shell_text_in_a_name(shell, trap, kind):
    screen = shell(kind)

    for typed in (
        "solo show bui\t",
        "solo wait 'bui\t",
        'solo stop "bui\t',
        "solo -n bui\t",
        "solo --name=bui\t",
    ):
        start = len(screen.screen)
        screen.type(typed)
        screen.wait_for("pwned", after=start)
        screen.type("\x15")
    screen.type("echo do''ne\n")
    screen.wait_for("\ndone")

    assert not trap[1].exists()


@pytest.fixture
def complete_in_fish(lab, home):
    """A function that returns the words that fish offers after what was typed."""

    def complete(typed):
        script = f"source {COMPLETIONS}/solo.fish; complete -C '{typed}'"
        _, out, err = finish(lab.start_words("fish", "--no-config", "-c", script))
        assert err == ""
        return [line.split("\t")[0] for line in out.splitlines()]

    return complete


@pytest.mark.tool("fish")
@pytest.mark.parametrize("typed", ["solo show bui", "solo -n bui"])
def test_fish_offers_a_name_with_shell_text_without_running_it(complete_in_fish, trap, typed):
    assert complete_in_fish(typed) == [trap[0]]
    assert not trap[1].exists()


@pytest.mark.tool("fish")
@pytest.mark.parametrize(
    "typed, expected",
    [
        ("solo --wa", {"--wait"}),
        ("solo li", {"list"}),
        ("solo list --j", {"--json"}),
        ("solo wait ", {"deploy/prod", "nightly"}),
        ("solo -q --name n", {"nightly"}),
    ],
)
def test_fish_completes_names_options_and_subcommands(lab, complete_in_fish, typed, expected):
    for name in ("nightly", "deploy/prod"):
        lab.hold(name)
    for name in ("new\nline", "tab\tulator"):
        lab.hold_old(name)

    offered = complete_in_fish(typed)

    assert expected <= set(offered) and (not typed.endswith("wait ") or expected == set(offered))


@IN_BOTH
def test_a_completed_name_is_quoted_for_the_shell(lab, shell, kind):
    for name in NAMES:
        lab.hold_old(name)
    screen = shell(kind)

    for number, name in enumerate(NAMES):
        start = len(screen.screen)
        screen.type(f"solo list --null {name[:3]}\t")
        screen.type(f" >{lab.path}/out{number}; echo status $?\n")
        screen.wait_for("\nstatus 0", after=start)

    assert [(lab.path / f"out{number}").read_text() for number in range(len(NAMES))] == [
        f"{name}\0" for name in NAMES
    ]


@IN_BOTH
def test_tab_completes_names_options_values_and_subcommands(lab, shell, kind):
    lab.hold("nightly")
    screen = shell(kind)

    for typed, expected in (
        ("solo wait nigh\t", "solo wait nightly"),
        ("solo -q --name nigh\t", "solo -q --name nightly"),
        ("solo docto\t", "solo doctor"),
        ("solo --lou\t", "solo --loud-after"),
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


@IN_BOTH
def test_tab_after_solo_offers_subcommands_and_no_programs(shell, kind):
    screen = shell(kind)

    screen.type("solo \t\t")
    screen.wait_for("doctor")
    screen.type("\x15echo do''ne\n")
    screen.wait_for("\ndone")

    assert b"history" in screen.screen and b"mktemp" not in screen.screen


@IN_BOTH
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

    assert sorted(lab.run("list", "--null", "--via", "file").stdout.split(b"\0")) == [
        b"",
        b"a/c",
        b"b",
        b"new\nline",
    ]
