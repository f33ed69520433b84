"""The engine on object stores: credentials, signatures, wrong and busy stores, and proof of a
holder's death.
"""

import base64
import calendar
import hashlib
import http.client
import itertools
import json
import os
import pwd
import random
import signal
import socket
import ssl
import string
import threading
import time
import urllib.parse

import pytest
import tally
from conftest import PATIENCE, finish, kill, read_line, until, write_program
from fleet import Clock, Host, find_overlaps, is_growing, read_life
from servers import S3, ask, serve, serve_alone
from stub import Stub

from solo.engines.http import open_tunnel
from solo.engines.s3 import credentials, sign
from solo.engines.s3.document import parse_document
from solo.engines.s3.engine import S3 as Engine
from solo.engines.targets import parse_url
from solo.errors import SoloError, UsageError

pytestmark = [pytest.mark.long, pytest.mark.full]

JOBS = (f"s3job{number}" for number in itertools.count())
KEYS = {"AccessKeyId": S3.keys[0], "SecretAccessKey": S3.keys[1]}


server, start_server = serve(S3), serve_alone()


@pytest.fixture
def hosts(lab, server):
    """A lab at the store, and a name."""
    lab.environment["SOLO_VIA"] = server.url
    lab.job, lab.server = next(JOBS), server
    return lab


def read_document(server, name):
    return json.loads(server.request("GET", f"solo/{name}.json").text)


# --- signatures-----------------------------------------------------------------------------------


def test_signature_is_that_of_botocore():
    auth = pytest.importorskip("botocore.auth", reason="botocore is not installed")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    chance = random.Random(tally.SEED)
    for _ in range(300):
        text = "".join(
            chance.choices(string.printable.strip() + " é%/+~=&", k=chance.randrange(1, 30))
        )
        path = "/" + sign.quote(text, "/").strip("/")
        query = {
            chance.choice("abcxyz") + str(number): text[::-1]
            for number in range(chance.randrange(4))
        }
        headers = (
            {"If-Match": '"' + text.encode().hex() + '"'}
            if chance.random() < 0.5
            else {"x-amz-meta-b": "a  b "}
        )
        body = os.urandom(chance.randrange(50))
        token, region = (
            chance.choice((None, "tok/en+=")),
            chance.choice(("us-east-1", "eu-central-1", "auto")),
        )
        secret = "".join(chance.choices(string.ascii_letters + "/+", k=chance.choice((20, 40, 90))))
        url = f"http://h.example:9000{path}?{sign.format_query(query)}"
        theirs = AWSRequest(chance.choice(("GET", "PUT", "DELETE")), url, dict(headers), body)
        auth.S3SigV4Auth(Credentials("AK", secret, token), "s3", region).add_auth(theirs)
        moment = calendar.timegm(time.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))

        request = theirs.method, "h.example:9000", path, sign.format_query(query)
        ours = sign.sign(sign.Keys("AK", secret, token), region, moment, request, headers, body)

        assert ours["Authorization"] == theirs.headers["Authorization"], f"SOLO_SEED={tally.SEED}"


# --- credentials----------------------------------------------------------------------------------


def answer_from(answers, header="", value=None):
    """Return a function for a Stub: {(method, path): (status, body)}, for requests with this header
    or for the header.
    """

    def answer(request, data):
        if request.headers.get(header) != value and request.command != "PUT":
            return 401, b""
        return answers.get((request.command, request.path), (404, b""))

    return answer


def make_settings(environment):
    return credentials.Settings(
        {key.encode(): str(value).encode() for key, value in environment.items()}
    )


def find(environment, timeout=5.0):
    return credentials.find_keys(make_settings(environment), timeout)


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".aws").mkdir()
    return {"HOME": tmp_path, "AWS_EC2_METADATA_DISABLED": "true"}


def write_profile(home, config="", shared=""):
    (home["HOME"] / ".aws" / "config").write_text(config)
    (home["HOME"] / ".aws" / "credentials").write_text(shared)
    return home


def test_keys_of_the_environment_come_before_those_of_a_profile(home):
    write_profile(home, shared="[default]\naws_access_key_id = F\naws_secret_access_key = f\n")

    keys = find(
        {**home, "AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "t"}
    )

    assert keys[:4] == ("E", "e", "t", None)
    assert find(home)[:3] == ("F", "f", None)


def test_profile_is_read_from_both_files(home):
    write_profile(
        home,
        "[profile prod]\nregion=eu-west-1 # near\ns3 =\n  addressing_style = path\n[default]\nregion = us-west-2\n",
        "; comment\n[prod]\naws_access_key_id=P\naws_secret_access_key=p=+/\naws_session_token = s\n",
    )
    environment = {**home, "AWS_PROFILE": "prod"}

    assert find(environment)[:3] == ("P", "p=+/", "s")
    assert make_settings(environment).find_region() == "eu-west-1"
    with pytest.raises(SoloError, match="AWS_PROFILE: no profile test"):
        find({**home, "AWS_PROFILE": "test"})


def test_files_of_aws_are_found_by_a_tilde_and_without_home(home, monkeypatch):
    (home["HOME"] / "keys").write_text(
        "[default]\naws_access_key_id = F\naws_secret_access_key = f\n"
    )
    (home["HOME"] / "settings").write_text("[default]\nregion = eu-west-1\n")
    files = {**home, "AWS_SHARED_CREDENTIALS_FILE": "~/keys", "AWS_CONFIG_FILE": "~/settings"}
    homeless = credentials.Settings({})

    assert (make_settings(files).find_region(), find(files)[:2]) == ("eu-west-1", ("F", "f"))
    assert homeless.expand("~/.aws/config") == pwd.getpwuid(os.geteuid()).pw_dir + "/.aws/config"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert homeless.expand("~/.aws/config") == ""


def test_process_of_a_profile_prints_the_keys(home):
    answer = json.dumps(
        {"Version": 1, "Expiration": "2026-11-23T06:00:00Z", "SessionToken": "t", **KEYS}
    )
    write_profile(home, f"[default]\ncredential_process = echo '{answer}'\n")

    assert find(home)[:4] == (*S3.keys, "t", 1795413600.0)


@pytest.mark.parametrize("process", ["echo no", "false", "echo '{}'", "sleep 100"])
def test_process_without_keys_is_an_error_in_words(home, process):
    write_profile(home, f"[default]\ncredential_process = {process}\n")

    with pytest.raises(SoloError, match="profile default: credential_process: "):
        find(home, timeout=0.3)


def write_hanging_process(home):
    """Return the file that gets the pid of a process that never answers."""
    file, script = home["HOME"] / "pid", home["HOME"] / "hang.sh"
    write_program(script, f"#!/bin/sh\necho $$ >{file}\nexec sleep 1000\n")
    write_profile(home, f"[default]\ncredential_process = {script}\n")
    return file


def is_running(file):
    return os.path.exists(f"/proc/{file.read_text().strip()}/cwd")


@pytest.mark.parametrize("process", ["the process", "a child"])
def test_process_is_killed_at_its_time_limit(home, process):
    """A child that was left in the background still has the pipe of the answer."""
    file = write_hanging_process(home)
    if process == "a child":
        (home["HOME"] / "hang.sh").write_text(f"#!/bin/sh\nsleep 1000 & echo $! >{file}\n")

    with pytest.raises(SoloError, match="no answer"):
        find(home, timeout=1.0)

    until(lambda: not is_running(file))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_process_does_not_outlive_the_launcher(lab, home, number):
    file = write_hanging_process(home)
    for name in [name for name in lab.environment if name.startswith("AWS_")]:
        del lab.environment[name]
    lab.environment.update(HOME=str(home["HOME"]), SOLO_VIA="s3://b?endpoint=http://127.0.0.1:1")
    launcher = lab.start("-n", "job", "true")
    until(lambda: file.exists() and file.read_text() and is_running(file))

    launcher.send_signal(number)

    assert launcher.wait(30) == -number
    until(lambda: not is_running(file))


@pytest.mark.parametrize("key", ["sso_session", "role_arn"])
def test_profile_that_needs_another_service_is_refused_with_the_remedy(home, key):
    """Also if it has keys of its own: they are those of another principal."""
    write_profile(home, f"[default]\n{key} = x\naws_access_key_id = F\naws_secret_access_key = f\n")

    with pytest.raises(
        SoloError, match=f"{key}: .*aws configure export-credentials --profile default"
    ):
        find(home)


STS_ANSWER = b"""<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
    <AccessKeyId>AKID</AccessKeyId><SecretAccessKey>s/+=</SecretAccessKey><SessionToken>t==</SessionToken>
    <Expiration>2026-11-23T06:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"""


@pytest.mark.parametrize("place", ["environment", "profile"])
def test_web_identity_gets_the_keys_of_its_role_from_sts(home, place):
    """It comes before the keys of a profile, as in the tools of AWS."""
    token, arn = home["HOME"] / "token", "arn:aws:iam::1:role/a b"
    token.write_text("ey.J&\n")
    asked = {}

    def answer(request, data):
        asked.update(urllib.parse.parse_qsl(data.decode()))
        return (200, STS_ANSWER) if "AssumeRoleWithWebIdentity" in data.decode() else (400, b"")

    service = Stub(answer)
    environment = {**home, "AWS_ENDPOINT_URL_STS": service.url}
    if place == "environment":
        write_profile(home, shared="[default]\naws_access_key_id = F\naws_secret_access_key = f\n")
        environment.update(
            AWS_WEB_IDENTITY_TOKEN_FILE=token, AWS_ROLE_ARN=arn, AWS_ROLE_SESSION_NAME="pod"
        )
    else:
        role = f"role_arn = {arn}\nweb_identity_token_file = {token}\nrole_session_name = pod\n"
        write_profile(home, f"[default]\n{role}")

    assert find(environment)[:4] == ("AKID", "s/+=", "t==", 1795413600.0)
    assert (asked["RoleArn"], asked["WebIdentityToken"], asked["RoleSessionName"]) == (
        arn,
        "ey.J&",
        "pod",
    )
    service.answer = lambda *_: (403, b"<Code>AccessDenied</Code><Message>Not authorized</Message>")
    with pytest.raises(SoloError, match="AccessDenied: Not authorized"):
        find(environment)


def test_container_gives_keys_for_its_token(home):
    (home["HOME"] / "token").write_text("secret word\n")
    answers = {("GET", "/v1"): (200, json.dumps({**KEYS, "Token": "t"}).encode())}
    service = Stub(answer_from(answers, "Authorization", "secret word"))
    environment = {**home, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service.url}/v1"}

    keys = find({**environment, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": home["HOME"] / "token"})

    assert keys[:3] == (*S3.keys, "t")
    with pytest.raises(SoloError, match="HTTP 401"):
        find(environment)


def test_instance_gives_the_keys_of_its_role_for_a_session_token(home):
    role = "/latest/meta-data/iam/security-credentials/"
    answers = {
        ("PUT", "/latest/api/token"): (200, b"word"),
        ("GET", role): (200, b"web\n"),
        ("GET", role + "web"): (
            200,
            json.dumps({**KEYS, "Token": "t", "Expiration": "2026-11-23T06:00:00Z"}).encode(),
        ),
    }
    service = Stub(answer_from(answers, "X-aws-ec2-metadata-token", "word"))
    environment = {"HOME": home["HOME"], "AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url + "/"}

    assert find(environment)[:4] == (*S3.keys, "t", 1795413600.0)
    answers.pop(("GET", role))
    with pytest.raises(SoloError, match="cannot find access keys"):
        find(environment)


def test_host_without_keys_is_an_error_with_the_places(home):
    with pytest.raises(
        SoloError, match="cannot find access keys .*AWS_ACCESS_KEY_ID.*~/.aws/credentials"
    ):
        find(home)


def test_keys_are_read_again_before_they_end(hosts, home, tmp_path):
    """The process is slower than a renewal may be, and the first keys end in a minute."""
    count = tmp_path / "count"
    answer = json.dumps(
        {"Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60)), **KEYS}
    )
    process = f"echo x >>{count}; sleep 1; echo '{answer}'"
    write_profile(home, f"[default]\ncredential_process = {process}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del hosts.environment[name]
    hosts.environment["HOME"] = str(tmp_path)

    holder = hosts.hold(hosts.job, "--ttl", "3s", "-w", "1m")
    until(lambda: count.read_text().count("x") >= 2)
    before = read_document(hosts.server, hosts.job)["queue"][0]["renewals"]
    until(lambda: read_document(hosts.server, hosts.job)["queue"][0]["renewals"] > before + 5)

    assert finish(holder)[0] == 0


# --- URLs-----------------------------------------------------------------------------------------


def open_engine(url, environment, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Engine(parse_url(url), 15.0, 2.0).store


IGNORING = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true"


@pytest.mark.parametrize(
    "url, environment, where",
    [
        ("locks/cron", "AWS_REGION=eu-west-1", "https://locks.s3.eu-west-1.amazonaws.com"),
        ("locks", "", "https://locks.s3.us-east-1.amazonaws.com"),
        ("locks?region=cn-north-1", "AWS_REGION=x", "https://locks.s3.cn-north-1.amazonaws.com.cn"),
        ("my.locks", "", "https://s3.us-east-1.amazonaws.com/my.locks"),
        ("locks?endpoint=https://minio:9000", "", "https://minio:9000/locks"),
        ("a", "AWS_USE_FIPS_ENDPOINT=true", "https://a.s3-fips.us-east-1.amazonaws.com"),
        ("a", "AWS_USE_DUALSTACK_ENDPOINT=true", "https://a.s3.dualstack.us-east-1.amazonaws.com"),
        ("a", f"AWS_ENDPOINT_URL=http://h {IGNORING}", "https://a.s3.us-east-1.amazonaws.com"),
        ("a", "AWS_CONFIG_FILE=services", "https://minio:9000/a"),
        (
            "locks",
            "AWS_ENDPOINT_URL=http://h AWS_ENDPOINT_URL_S3=http://[::1]:80/s3/",
            "http://[::1]:80/s3/locks",
        ),
    ],
)
def test_bucket_is_found_at_its_endpoint(monkeypatch, tmp_path, url, environment, where):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "services").write_text(
        "[default]\nservices = own\n[services own]\nsts =\n  endpoint_url = x\ns3 =\n  endpoint_url = https://minio:9000\n"
    )
    typed = dict(pair.split("=") for pair in environment.split())

    store = open_engine(f"s3://{url}", {"HOME": str(tmp_path), **typed}, monkeypatch)

    assert f"{'https' if store.is_encrypted else 'http'}://{store.netloc}{store.root}" == where


def test_fips_and_an_endpoint_are_refused(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="AWS_USE_FIPS_ENDPOINT"):
        open_engine(
            "s3://a?endpoint=http://h",
            {"HOME": str(tmp_path), "AWS_USE_FIPS_ENDPOINT": "true"},
            monkeypatch,
        )


@pytest.mark.parametrize(
    "url", "a,b a:9000 a?endpoint=h:9000 u@a a?endpoint=http://h/?x a?kms=k".split()
)
def test_wrong_url_is_a_usage_error(monkeypatch, tmp_path, url):
    with pytest.raises(UsageError):
        open_engine(f"s3://{url}", {"HOME": str(tmp_path)}, monkeypatch)


# --- the store refuses----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, words",
    [
        ({"SOLO_VIA": "nowhere"}, "NoSuchBucket"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "unknown"}, "InvalidAccessKeyId"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refusal_ends_a_waiter_at_once_in_one_line(hosts, server, change, words):
    environment = {**hosts.environment, **change}
    if "SOLO_VIA" in change:
        environment["SOLO_VIA"] = server.url.replace(S3.bucket, "nowhere")

    result = hosts.run("-n", hosts.job, "-w", "1h", "--", *RUN, env=environment, timeout=30)

    assert (result.returncode, result.stderr.count(b"\n"), hosts.read_log()) == (125, 1, []), (
        result.stderr
    )
    assert words.encode() in result.stderr and b"Traceback" not in result.stderr


def test_foreign_object_is_refused_and_kept(hosts, server):
    endless = b'{"solo": 1, "counter": 1e999, "once": "", "queue": []}'
    for text in (b"hello", b"{}", b'{"solo": 2, "queue": []}', b"[" * 100_000, endless):
        assert server.request("PUT", f"solo/{hosts.job}.json", text).status == 200

        result = hosts.run("-n", hosts.job, "-w", "1h", "true", timeout=30)

        assert result.returncode == 125 and result.stderr.count(b"\n") == 1, (text, result.stderr)
        assert b"remove the object" in result.stderr
        explained = hosts.run("-n", hosts.job, "--explain", "true")
        assert explained.returncode == 125 and b"remove the object" in explained.stderr
        assert server.request("GET", f"solo/{hosts.job}.json").text == text
        assert [row["state"] for row in hosts.list() if row["name"] == hosts.job] == ["held"]


class Memory:
    """A small store, with the faults of none: it ignores the conditions in `ignored`; `refusals`
    are the next answers.
    """

    def __init__(self):
        self.ignored, self.objects, self.lock = (), {}, threading.Lock()
        self.refusals, self.put_refusals = [], []

    def __call__(self, request, data):
        with self.lock:
            if self.refusals:
                refusal = self.refusals.pop(0)
                return refusal() if callable(refusal) else refusal
            if request.command == "PUT" and self.put_refusals:
                return self.put_refusals.pop(0)
            there, etag = self.objects.get(request.path, (None, None))
            if request.command == "GET":
                return (
                    (200, there, ("ETag", etag))
                    if etag
                    else (404, b"<Error><Code>NoSuchKey</Code></Error>")
                )
            wanted = request.headers.get("If-Match")
            is_there = request.headers.get("If-None-Match") and etag
            unmet = {"If-Match": wanted not in (None, etag), "If-None-Match": is_there}
            if any(is_unmet for name, is_unmet in unmet.items() if name not in self.ignored):
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
            self.objects[request.path] = data, f'"{os.urandom(16).hex()}"'
            return 200, b"", ("ETag", self.objects[request.path][1])


@pytest.fixture
def memory(lab):
    memory = Memory()
    memory.service = Stub(memory)
    lab.environment["SOLO_VIA"] = f"s3://bucket/locks?endpoint={memory.service.url}"
    yield memory
    memory.service.close()


CONDITIONS = ("If-Match", "If-None-Match")
RUN = ("sh", "-c", "echo ran >>$LAB/log")


def denounce(document):
    """Say that the document was proven at another store."""
    document["proven"] = document["proven"].replace("127.0.0.1", "other")


def change_document(memory, change):
    """Have `change` change the only document of the store. Return (its path, the document)."""
    [(path, (text, etag))] = [
        (path, there) for path, there in memory.objects.items() if path.endswith(".json")
    ]
    document = json.loads(text)
    change(document)
    memory.objects[path] = json.dumps(document).encode(), f'{etag[:-2]}x"'
    return path, document


def list_queues(memory):
    """Return the queue of each name that the store has."""
    return [
        json.loads(text)["queue"]
        for path, (text, _) in memory.objects.items()
        if path.endswith(".json")
    ]


@pytest.mark.parametrize("ignored", [CONDITIONS, CONDITIONS[:1], CONDITIONS[1:]], ids="+".join)
def test_store_that_ignores_conditions_is_refused_each_time(lab, memory, ignored):
    memory.ignored = ignored

    results = [lab.run("-n", "job", "-w", "1h", "--", *RUN, timeout=30) for _ in range(3)]

    assert [result.returncode for result in results] == [125] * 3 and lab.read_log() == []
    assert all(b"does not honour If-Match and If-None-Match" in result.stderr for result in results)
    assert list_queues(memory) == []
    doctor = lab.run("doctor", timeout=30)
    assert doctor.returncode == 1 and b"does not honour" in doctor.stdout
    memory.ignored = ()
    assert lab.run("doctor", timeout=30).returncode == 0
    assert lab.run("-n", "job", "--", *RUN).returncode == 0 and lab.read_log() == ["ran"]


@pytest.mark.parametrize("ignored", [(), CONDITIONS, CONDITIONS[:1], CONDITIONS[1:]], ids="+".join)
def test_two_contenders_at_a_new_store_both_prove_it(lab, memory, ignored):
    """Both have read that the object is missing before one may write."""
    memory.ignored = ignored
    barrier, met = threading.Barrier(2), []

    def answer(request, data):
        if request.command == "GET" and len(met) < 2:
            met.append(request)
            barrier.wait(30)
            return 404, b"<Error><Code>NoSuchKey</Code></Error>"
        return memory(request, data)

    memory.service.answer = answer
    pair = [lab.start("-n", "job", "-w", "1m", "--dir", lab.path / one, "--", *RUN) for one in "ab"]
    statuses = [finish(one)[0] for one in pair]

    assert statuses == ([125] * 2 if ignored else [0] * 2)
    assert lab.read_log() == ([] if ignored else ["ran"] * 2)
    assert list_queues(memory) == ([] if ignored else [[]])


@pytest.mark.parametrize("at", range(3))
def test_contender_killed_during_the_proof_proves_nothing(lab, memory, at):
    """It dies when the store has executed its PUT number `at`, before the answer."""
    memory.ignored = CONDITIONS[:1]
    killed = []

    def answer(request, data):
        reply = memory(request, data)
        if request.command == "PUT" and len(killed) <= at:
            killed.append(request)
            if len(killed) > at:
                started.wait()
                first.kill()
        return reply

    started = threading.Event()
    memory.service.answer = answer
    first = lab.start("-n", "job", "--", *RUN)
    started.set()
    assert first.wait(30) == -signal.SIGKILL

    assert [lab.run("-n", "job", "--", *RUN, timeout=30).returncode for _ in range(2)] == [125] * 2
    assert lab.read_log() == [] and list_queues(memory) == []


def test_object_is_proven_once(lab, memory):
    assert [lab.run("-n", name, "true").returncode for name in ("job", "job", "other")] == [0] * 3

    puts = [path.rpartition("/")[2] for method, path, _ in memory.service.asked if method == "PUT"]
    assert puts[:11] == [".proof"] * 3 + ["job.json"] * 8
    assert puts[11:] == [".proof"] * 2 + ["other.json"] * 4


def count_proofs(memory):
    return sum(
        method == "PUT" and path.endswith(".proof") for method, path, _ in memory.service.asked
    )


def test_holder_proves_nothing_during_its_lease(lab, memory):
    """A renewal has no time for it. Contenders by another address of the store replace what the
    object says of it.
    """
    assert lab.run("-n", "job", "true").returncode == 0
    holder = lab.hold("job", "--ttl", "3s")
    before = count_proofs(memory)
    _, document = change_document(memory, denounce)

    until(lambda: list_queues(memory)[0][0]["renewals"] > document["queue"][0]["renewals"] + 2)
    asked = count_proofs(memory)

    assert finish(holder)[0] == 0 and asked == before


@pytest.mark.parametrize(
    "change", [lambda document: document.pop("proven"), denounce], ids=["dropped", "elsewhere"]
)
def test_queue_that_is_not_proven_here_is_proven_and_left_alone(lab, memory, change):
    """An object of an earlier version, or one copied from another store, with a live holder in its
    queue.
    """
    holder = lab.hold("job", "--ttl", "1h")
    path, document = change_document(memory, change)
    memory.ignored = CONDITIONS

    waiting = lab.run("-n", "job", "-w", "1s", "--dir", lab.path / "b", "--", *RUN, timeout=30)

    assert waiting.returncode == 125 and json.loads(memory.objects[path][0]) == document
    memory.ignored = ()
    waiting = lab.start("-n", "job", "-w", "1h", "--dir", lab.path / "b", "--", *RUN)
    until(lambda: len(json.loads(memory.objects[path][0])["queue"]) == 2)
    assert json.loads(memory.objects[path][0])["queue"][0] == document["queue"][0]
    assert (finish(holder)[0], finish(waiting)[0]) == (0, 0) and lab.read_log() == ["ran"]


SLOW = (
    503,
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
)


def test_busy_store_is_asked_again(lab, memory):
    memory.refusals = [SLOW, (429, b"")]
    memory.put_refusals = [
        SLOW,
        (500, b""),
        (409, b"<Error><Code>ConditionalRequestConflict</Code></Error>"),
    ]

    assert lab.run("-n", "job", "true", timeout=30).returncode == 0
    assert not memory.refusals and not memory.put_refusals


@pytest.mark.parametrize("then", ["busy", "silent"])
def test_store_that_stays_busy_is_unreachable_and_asked_seldom(lab, memory, then):
    end = threading.Event()
    memory.refusals = [SLOW, *([SLOW] * 1000 if then == "busy" else [lambda: end.wait() and SLOW])]

    result = lab.run("-n", "job", "true", timeout=30)
    end.set()

    assert result.returncode == 69 and b"SlowDown" in result.stderr
    assert len(memory.service.asked) < 20


def test_failed_release_says_who_frees_the_name(lab, memory):
    holder = lab.hold("job", "--ttl", "4s")
    memory.service.answer = lambda *_: SLOW

    status, _, errors = finish(holder)

    assert (
        status == 0
        and "SlowDown: our names are free once a contender has seen no renewal for 4s" in errors
    )


def test_bucket_of_another_region_is_asked_there(lab, memory):
    body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-south-2</Region></Error>"
    memory.refusals = [(400, body)]

    assert lab.run("-n", "job", "true", timeout=30).returncode == 0


INVALID = [
    *[
        (200, b"{}", ("ETag", "")),
        (200, b"\xff", ("ETag", '"a"')),
        (200, b"", ("ETag", '"a\x01b"')),
    ],
    *[(200, b"{}", ("Date", "yesterday")), (403, b"<Error><Code>" + b"x" * 10_000)],
    *[(403, b"\x1b]0;title\x07<Code>\x1b[31m</Code>"), (404, b"<html>"), (599, b"?")],
    *[(status, b"") for status in (204, 301, 304)],
]


@pytest.mark.parametrize("answer", INVALID, ids=str)
def test_invalid_answer_fails_in_one_line_without_a_run(lab, memory, answer):
    memory.refusals = [answer] * 50

    result = lab.run("-n", "job", "--ttl", "3s", "--", *RUN, timeout=30)

    assert result.returncode in (69, 125) and lab.read_log() == []
    assert result.stderr.count(b"\n") == 1 and not any(
        word in result.stderr for word in (b"bug", b"\x1b")
    )


def test_one_invalid_answer_to_a_renewal_is_harmless(lab, memory):
    holder = lab.hold("job", "--ttl", "3s")
    for answer in ((200, b"[]"), (403, b"?"), (404, b"?"), SLOW):
        seen = len(memory.service.asked)
        memory.refusals = [answer]
        until(lambda: len(memory.service.asked) > seen + 3)

    assert finish(holder)[0] == 0


def test_listing_has_several_pages(lab, memory):
    lab.hold("a/b c")
    pages = [
        b"<Key>locks/a/b%20c.json</Key><Key>locks/.probe-1</Key><Key>locks/%zz.json</Key><NextContinuationToken>n</NextContinuationToken>",
        b"<Key>locks/other.txt</Key>",
    ]

    def answer(request, data):
        if "list-type=2" not in request.path:
            return memory(request, data)
        query = dict(urllib.parse.parse_qsl(request.path.partition("?")[2]))
        assert query["prefix"] == "locks/"
        return 200, pages["continuation-token" in query]

    memory.service.answer = answer

    assert [row["name"] for row in json.loads(lab.run("list", "--json").stdout)] == ["a/b c"]


# --- a crowd--------------------------------------------------------------------------------------


def refuse_changes(memory, count):
    """Have the store refuse the next PUTs to the name's object, as if another contender had changed
    it each time.
    """
    left = [count]

    def answer(request, data):
        if request.command == "PUT" and request.path.endswith("job.json") and left[0]:
            left[0] -= 1
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
        return memory(request, data)

    memory.service.answer = answer
    return left


def test_waiter_renews_the_more_seldom_the_more_are_before_it(lab, memory):
    holder = lab.hold("job", "--ttl", "10s")
    waiters = []
    for number in range(3):
        words = ("-n", "job", "-w", "1h", "--ttl", "10s", "--dir", lab.path / str(number))
        waiters.append(lab.start(*words, "--", "sh", "-c", f"echo {number} >>$LAB/log"))
        until(lambda: len(list_queues(memory)[0]) == 2 + len(waiters) - 1)

    assert [stored["ttl"] for stored in list_queues(memory)[0]] == [10, 10, 20, 30]
    assert [finish(one)[0] for one in (holder, *waiters)] == [0] * 4 and lab.read_log() == [
        "0",
        "1",
        "2",
    ]


LONG = ("-n", "job", "--ttl", "1h")  # its renewals are twelve minutes apart


def test_crowd_of_commands_that_take_no_time_all_run(lab, memory):
    holder = lab.hold("job")
    waiters = []
    for number in range(6):
        words = ("-n", "job", "-w", "1h", "--dir", lab.path / str(number))
        waiters.append(lab.start(*words, "--", "sh", "-c", f"echo {number} >>$LAB/log"))
        until(lambda: len(list_queues(memory)[0]) == 2 + len(waiters) - 1)

    assert [finish(one)[0] for one in (holder, *waiters)] == [0] * 7
    assert lab.read_log() == [str(number) for number in range(6)]


def age_first(memory, at):
    """Have the store's document begin with its entry `at`, renewed three quarters of its period
    ago.
    """

    def change(document):
        del document["queue"][:at]
        first = document["queue"][0]
        first["renewed"] = time.time() - 0.75 * first["ttl"] / 5

    return change_document(memory, change)


def test_waiter_whose_turn_has_come_yields_to_nobody(lab, memory):
    """It was the second one, whose lease is twice as long, and its last renewal is as old as one
    that is due.
    """
    earlier = [
        lab.hold("job", "--ttl", "1h"),
        lab.start(*LONG, "-w", "1h", "--dir", lab.path / "a", "--", *RUN),
    ]
    until(lambda: len(list_queues(memory)[0]) == 2)
    waiter = lab.start(*LONG, "-w", "1h", "--dir", lab.path / "b", "--", *RUN)
    until(lambda: len(list_queues(memory)[0]) == 3)
    for one in earlier:
        kill(one)

    age_first(memory, 2)

    assert waiter.wait(PATIENCE) == 0 and lab.read_log() == ["ran"]


def test_waiter_runs_once_the_one_before_it_has_joined_again(lab, memory):
    """As a waiter does that was stopped for longer than its lease; its key is the same."""
    holder = lab.hold("job", "--ttl", "1h")
    waiters = []
    for number in range(2):
        waiters.append(lab.start(*LONG, "-w", "1h", "--dir", lab.path / str(number), "--", *RUN))
        until(lambda: len(list_queues(memory)[0]) == 2 + len(waiters) - 1)
    kill(holder)

    def rejoin(document):
        _, stopped, other = document["queue"]
        document["counter"] += 1
        document["queue"] = [other, {**stopped, "number": document["counter"]}]

    change_document(memory, rejoin)

    assert [waiter.wait(PATIENCE) for waiter in waiters] == [0, 0] and lab.read_log() == ["ran"] * 2


def test_contender_that_can_run_yields_to_nobody(lab, memory):
    holder = lab.hold("job", "--ttl", "1h", "--slots", "2")
    age_first(memory, 0)

    assert lab.run(*LONG, "--slots", "2", "--dir", lab.path / "b", "--", *RUN).returncode == 0
    assert lab.read_log() == ["ran"]
    kill(holder)


def test_contender_that_yielded_until_its_wait_was_over_is_busy(lab, memory):
    """There is time for its last request: what the store would have answered is no outage."""
    holder = lab.hold("job", "--ttl", "1h")
    waiter = lab.start(*LONG, "-w", "1h", "--dir", lab.path / "a", "--", *RUN)
    until(lambda: len(list_queues(memory)[0]) == 2)
    age_first(memory, 0)

    result = lab.run(*LONG, "-w", "6s", "--dir", lab.path / "b", "--", *RUN, timeout=PATIENCE)

    assert (result.returncode, lab.read_log()) == (75, []) and b"busy: held" in result.stderr
    kill(holder)
    kill(waiter)


def count_puts(memory, renewals):
    """Have another contender change the object after each PUT, for so many PUTs of a holder. Return
    their statuses.
    """
    statuses = []

    def answer(request, data):
        reply = memory(request, data)
        if request.command == "PUT" and len(statuses) < renewals:
            statuses.append(reply[0])
            change_document(memory, lambda document: None)
        return reply

    memory.service.answer = answer
    return statuses


def test_holder_writes_only_what_it_has_read_if_others_wait(lab, memory):
    holder = lab.hold("job", "--ttl", "4s")
    waiter = lab.start("-n", "job", "--ttl", "1h", "-w", "1h", "--dir", lab.path / "b", "true")
    until(lambda: len(list_queues(memory)[0]) == 2)
    before = list_queues(memory)[0][0]["renewals"]
    until(
        lambda: list_queues(memory)[0][0]["renewals"] > before
    )  # that one may have read nothing of the waiter

    statuses = count_puts(memory, 5)
    until(lambda: len(statuses) == 5)

    assert (finish(holder)[0], finish(waiter)[0], statuses) == (0, 0, [200] * 5)


def test_release_is_repeated_until_the_lease_is_over(lab, memory):
    """All refusals together take longer than one call may."""
    holder = lab.hold("job", "--ttl", "15s")
    left = refuse_changes(memory, 14)

    status, _, errors = finish(holder)

    assert (status, errors, left, list_queues(memory)) == (0, "", [0], [[]])


def test_contender_whose_writes_are_all_refused_is_busy(lab, memory):
    refuse_changes(memory, 10_000)

    result = lab.run("-n", "job", "--ttl", "4s", "--", *RUN, timeout=30)

    assert (result.returncode, result.stderr.count(b"\n"), lab.read_log()) == (75, 1, [])
    assert b"busy: " in result.stderr and b"other contenders change the queue" in result.stderr


def test_request_cut_short_after_a_refusal_is_no_outage(lab, memory):
    """The next answer would come in time, but the contender's time is over before."""
    left, refuse, over = refuse_changes(memory, 1), memory.service.answer, threading.Event()

    def answer(request, data):
        if not left[0]:
            over.wait(5)
        return refuse(request, data)

    memory.service.answer = answer

    result = lab.run("-n", "job", "--ttl", "4s", "--", *RUN, timeout=30)
    over.set()

    assert result.returncode == 75 and b"other contenders change the queue" in result.stderr


# --- encryption, checksums, proxies---------------------------------------------------------------


def test_each_put_has_a_checksum_and_the_encryption_of_the_url(lab, memory):
    lab.environment["SOLO_VIA"] += "&sse=aws:kms&kms=key"
    puts = []

    def answer(request, data):
        if request.command == "PUT":
            puts.append(
                [
                    request.headers["Content-MD5"]
                    == base64.b64encode(hashlib.md5(data).digest()).decode()
                ]
            )
            puts[-1] += [
                request.headers[f"x-amz-server-side-encryption{end}"]
                for end in ("", "-aws-kms-key-id")
            ]
        return memory(request, data)

    memory.service.answer = answer

    assert lab.run("-n", "job", "true").returncode == 0
    assert len(puts) > 5 and all(put == [True, "aws:kms", "key"] for put in puts)


def test_https_goes_through_the_proxy_of_the_environment(lab, memory):
    asked = []

    def answer(request, data):
        asked.append((request.path, request.headers["Proxy-Authorization"]))
        return 407, b""

    proxy = Stub(answer)
    lab.environment["SOLO_VIA"] = "s3://bucket?endpoint=https://store.test:9000"
    lab.environment["HTTPS_PROXY"] = proxy.url.replace("//", "//u:p@")

    result = lab.run("-n", "job", "true")

    assert asked == [("store.test:9000", "Basic dTpw")]
    assert (
        result.returncode == 69
        and f"the proxy {proxy.url[7:]} answers HTTP 407".encode() in result.stderr
    )
    lab.environment["NO_PROXY"] = "other, .test"
    lab.run("-n", "job", "true")
    assert len(asked) == 1


def test_proxy_that_fails_is_named(lab):
    """A dead one, and a server that is none. Their user and password are not."""
    lab.environment["SOLO_VIA"] = "s3://bucket/x?endpoint=https://store.test:9000"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(
            target=lambda: server.accept()[0].sendall(b"SSH-2.0-x\r\n"), daemon=True
        ).start()
        for reason in (b"the answer is not HTTP", b"Connection refused"):
            lab.environment["HTTPS_PROXY"] = f"http://alice:secret@127.0.0.1:{port}"
            result = lab.run("-n", "job", "true")

            assert (result.returncode, result.stderr.count(b"\n")) == (
                69,
                1,
            ) and b"secret" not in result.stderr
            where = b"endpoint=https://store.test:9000: the proxy 127.0.0.1:%d: " % port
            assert (
                where + reason + b" (HTTPS_PROXY names it; NO_PROXY=store.test spares"
                in result.stderr
            )
            server.close()


def test_tunnel_of_a_proxy_leads_to_the_server():
    def connect(request, _):
        host, _, port = request.path.rpartition(":")
        with socket.create_connection((host, int(port))) as other:
            request.send_response(200)
            request.end_headers()
            request.wfile.write(other.recv(10))

    relay = Stub(connect)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        one = open_tunnel(f"127.0.0.1:{relay.port}", "127.0.0.1", port, time.monotonic() + 30)

        other, _ = server.accept()
        other.sendall(b"hello")
        assert one.recv(10) == b"hello"
        for opened in (one, other, relay):
            opened.close()


# --- TLS------------------------------------------------------------------------------------------


class SecureS3(S3):
    @property
    def frontend(self):
        key, certificate = self.path / "key.pem", self.path / "cert.pem"
        words = "-newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
        ask("openssl", "req", "-x509", *words.split(), "-keyout", key, "-out", certificate)
        return f"ssl_endpoint=127.0.0.1:{self.port} ssl_certificate={certificate} ssl_private_key={key}"

    def open(self):
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=5, context=ssl._create_unverified_context()
        )

    def make_url(self, *ports):
        return super().make_url(*ports).replace("http:", "https:")


@pytest.mark.tool("openssl")
def test_tls_needs_a_trusted_certificate(lab, start_server):
    server = start_server(SecureS3)
    lab.environment["SOLO_VIA"] = server.url

    distrusted = lab.run("-n", "job", "-w", "1h", "true", timeout=30)
    lab.environment["AWS_CA_BUNDLE"] = str(server.path / "cert.pem")
    trusted = lab.run("-n", "job", "true")

    assert (distrusted.returncode, trusted.returncode) == (125, 0), trusted.stderr
    assert b"certificate is not signed by an authority" in distrusted.stderr


# --- requests-------------------------------------------------------------------------------------


def test_run_costs_five_requests_and_a_busy_contender_one(lab, memory):
    lab.run("-n", "job", "true")
    before = len(memory.service.asked)
    holder = lab.hold("job", "--ttl", "1h")
    held = len(memory.service.asked)
    assert lab.run("-n", "job", "--dir", lab.path / "b", "true").returncode == 75
    busy = len(memory.service.asked)
    finish(holder)

    assert (held - before, busy - held, len(memory.service.asked) - busy) == (4, 1, 1)


def test_waiter_looks_more_often_than_it_writes(lab, memory):
    holder = lab.hold("job", "--ttl", "30s")
    waiting = lab.start("-n", "job", "-w", "1h", "--ttl", "30s", "--dir", lab.path / "b", "true")

    def count(wanted):
        return sum(
            method == wanted and path.endswith("job.json")
            for method, path, _ in memory.service.asked
        )

    until(lambda: count("GET") > 8)
    assert count("PUT") < 12
    assert [finish(process)[0] for process in (holder, waiting)] == [0, 0]


# --- the proof of a holder's death----------------------------------------------------------------


def leave_dead_entry(hosts, ttl="3s"):
    """Hold the name, kill launcher and command, and wait until views no longer show the entry."""
    holder = hosts.start("-n", hosts.job, "--ttl", ttl, "--", "sh", "-c", "echo; read line")
    read_line(holder)
    kill(holder)
    until(lambda: hosts.list(hosts.job) == [])


@pytest.mark.parametrize(
    "options, is_announced", [("", True), ("-w 1s", True), ("-q", False), ("-w 1m", False)]
)
def test_contender_without_wait_acquires_the_name_of_a_dead_host(
    hosts, server, options, is_announced
):
    leave_dead_entry(hosts)
    [dead] = read_document(server, hosts.job)["queue"]

    words = (*options.split(), "--dir", hosts.path / "b")
    result = hosts.run("-n", hosts.job, *words, "--", "sh", "-c", "echo $SOLO_TOKEN")

    line = f"solo: {hosts.job}: waiting up to 7s: the holder on {os.uname().nodename} does not renew its lease\n"
    assert result.stderr.decode() == line * is_announced
    assert result.returncode == 0 and int(result.stdout) > dead["number"]
    assert read_document(server, hosts.job)["queue"] == []


def test_dead_waiter_goes_before_a_dead_holder_of_the_same_ttl(lab, memory):
    words = ("-n", "job", "--ttl", "10s", "-w", "1h")
    holder = lab.hold("job", "--ttl", "10s")
    waiter = lab.start(*words, "--dir", lab.path / "b", "true")
    until(lambda: [stored["waits"] for stored in list_queues(memory)[0]] == [False, True])
    for launcher in holder, waiter:
        kill(launcher)
    dead = [stored["owner"] for stored in list_queues(memory)[0]]
    waiter = lab.start(*words, "--dir", lab.path / "c", "true")
    until(lambda: len(list_queues(memory)[0]) == 3)

    until(lambda: len(list_queues(memory)[0]) == 2)

    assert [stored["owner"] for stored in list_queues(memory)[0]][:1] == dead[:1]
    kill(waiter)


def test_entry_that_does_not_say_that_it_waits_counts_as_a_holder():
    """Earlier versions do not say it."""
    known = {
        "owner": "a",
        "number": 1,
        "renewals": 0,
        "ttl": 10,
        "renewed": 0,
        "asked": "",
        "record": {},
    }

    def find_proof(**change):
        text = {"solo": 1, "counter": 1, "once": "", "queue": [{**known, **change}]}
        return parse_document(json.dumps(text).encode()).queue[0].proof

    assert (find_proof(), find_proof(waits=False), find_proof(waits=True)) == (11.0, 11.0, 6.0)


def test_token_grows_although_the_object_was_removed(hosts, server):
    def run():
        return int(hosts.run("-n", hosts.job, "--", "sh", "-c", "echo $SOLO_TOKEN").stdout)

    tokens = [run(), run()]
    server.remove_lock(hosts.job)
    time.sleep(1.1)  # the store's clock has whole seconds
    tokens.append(run())

    assert tokens == sorted(set(tokens))


@pytest.mark.tool("gcc")
@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_wall_clock_has_no_part(hosts, server, ahead):
    """The holder's clock steps while it holds the name, and the waiter's is wrong by as much the
    other way.
    """
    clocks = [Clock(hosts.path, 0), Clock(hosts.path, -ahead)]
    pair = [Host(hosts, server, f"clock{number}") for number in range(2)]
    for host, clock in zip(pair, clocks):
        host.environment = {**host.environment, **clock.environment}
    files = [hosts.path / "life0", hosts.path / "life1"]
    pair[0].start(hosts.job, files[0], 12, "--ttl", "5s", "-k", "300ms")
    until(lambda: read_life(files[0]) is not None or pair[0].launcher.poll() is not None)
    assert pair[0].launcher.poll() is None, pair[0].launcher.stderr.read()
    pair[1].start(hosts.job, files[1], 0.2, "--ttl", "5s", "-k", "300ms")
    clocks[0].set(ahead)

    assert [host.launcher.wait(60) for host in pair] == [0, 0], [
        host.launcher.stderr.read() for host in pair
    ]
    lives = [read_life(file) for file in files]
    assert lives[0].last - lives[0].first > 8 and not find_overlaps(lives) and is_growing(lives)
    for host in pair:
        host.close()
