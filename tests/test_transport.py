"""The wire carries plain data between authenticated ends, and survives whatever is sent to it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from multiprocessing import AuthenticationError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sklearn_fairleak import transport
from sklearn_fairleak.exceptions import LedgerIntegrityError, PrivacyBudgetExceeded, UnknownIndividuals
from sklearn_fairleak.handshake import dial
from sklearn_fairleak.transport import Client, serve

# Newer Pythons warn of forks with threads; that these work is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

KEY = b"a key of some length"


def echo(header, arrays):
    return header, arrays


def fail(header, arrays):
    errors = {
        "PrivacyBudgetExceeded": PrivacyBudgetExceeded("spent"),
        "UnknownIndividuals": UnknownIndividuals("3 of 5 sample ids"),
        "LedgerIntegrityError": LedgerIntegrityError("altered"),
        "ValueError": ValueError("bad value"),
        "TypeError": TypeError("bad type"),
        "KeyError": KeyError("missing"),
        "UnicodeDecodeError": UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
        "OSError": OSError(5, "secret text"),
        "ZeroDivisionError": ZeroDivisionError("secret text"),
    }
    raise errors[header["error"]]


@pytest.fixture
def server():
    with serve(echo, authkey=KEY) as served:
        yield served


@pytest.fixture
def client(server):
    asking = Client(server.address, KEY)
    yield asking
    asking.close()


class TestMessages:
    @settings(deadline=None, max_examples=60)
    @given(
        arrays=st.lists(
            hnp.arrays(
                dtype=st.one_of(
                    hnp.boolean_dtypes(),
                    hnp.integer_dtypes(endianness="?"),
                    hnp.unsigned_integer_dtypes(endianness="?"),
                    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
                    hnp.unicode_string_dtypes(endianness="?", max_len=5),
                    hnp.byte_string_dtypes(max_len=5),
                ),
                shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
            ),
            max_size=4,
        ),
        header=st.dictionaries(
            st.text(),
            st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists),
            max_size=4,
        ),
    )
    def test_what_is_sent_arrives(self, arrays, header):
        with serve(echo, authkey=KEY) as server:
            client = Client(server.address, KEY)
            reply, received = client.ask(header, arrays)
            client.close()
        assert reply == header
        assert len(received) == len(arrays)
        for sent, got in zip(arrays, received, strict=True):
            assert got.shape == sent.shape
            assert got.dtype == sent.dtype.newbyteorder("<")
            np.testing.assert_array_equal(got, sent)

    def test_strided_and_object_arrays(self, client):
        block = np.arange(24).reshape(4, 6)
        sent = [
            block[::2, ::3],
            block.T,
            np.array(["No", "Yes"], dtype=object),
            np.array([True, False], dtype=object),
            np.array([1, 2**40], dtype=object),
            np.array([1, 0.5], dtype=object),
            [1.5, 2.5],
        ]
        _, got = client.ask({}, sent)
        for one, other in zip(sent, got, strict=True):
            assert np.asarray(one).tolist() == other.tolist()

    @pytest.mark.parametrize(
        "array",
        [
            np.array([object()]),
            np.array([1 + 2j]),
            np.array(["2020-01-01"], dtype="M8[D]"),
            np.array([None, "x"], dtype=object),
            np.zeros(2, dtype=[("a", int)]),
            np.zeros((1,) * 5),
        ],
    )
    def test_other_arrays_are_refused_before_anything_is_sent(self, client, array):
        with pytest.raises(TypeError, match="cannot be sent"):
            client.ask({}, [array])
        assert client.ask({"still": "there"})[0] == {"still": "there"}

    def test_large_arrays(self, client):
        sent = np.arange(3_000_000, dtype=np.float64)
        _, (got,) = client.ask({}, [sent])
        np.testing.assert_array_equal(got, sent)

    def test_nan_in_headers(self, client):
        reply, _ = client.ask({"value": float("nan"), "far": float("inf")})
        assert repr(reply) == "{'value': nan, 'far': inf}"

    def test_header_that_is_not_json(self, client):
        with pytest.raises(TypeError):
            client.ask({"value": object()})
        assert client.ask({})[0] == {}

    def test_limits(self):
        with serve(echo, authkey=KEY, max_bytes=1000) as server:
            small = Client(server.address, KEY, max_bytes=1000)
            with pytest.raises(ValueError, match="too large"):
                small.ask({}, [np.zeros(200)])
            with pytest.raises(ValueError, match="too large"):
                small.ask({}, [np.zeros(1)] * 65)
            assert small.ask({})[0] == {}
            large = Client(server.address, KEY)
            with pytest.raises(ValueError, match="larger than 1000 bytes"):
                large.ask({}, [np.zeros(200)])
            with pytest.raises((ValueError, ConnectionError)):
                large.ask({}, [np.zeros(5_000_000)])
            assert small.ask({})[0] == {}
            small.close()
            large.close()

    def test_reply_that_cannot_be_sent(self):
        replies = iter([({"x": object()}, []), ({}, [np.array([None])]), (None, []), ({"fine": 1}, [])])
        with serve(lambda header, arrays: next(replies), authkey=KEY) as server:
            client = Client(server.address, KEY)
            for _ in range(3):
                with pytest.raises(TypeError):
                    client.ask({})
            assert client.ask({}) == ({"fine": 1}, [])
            client.close()


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "kind", "text"),
        [
            ("PrivacyBudgetExceeded", PrivacyBudgetExceeded, "spent"),
            ("UnknownIndividuals", UnknownIndividuals, "3 of 5 sample ids"),
            ("LedgerIntegrityError", LedgerIntegrityError, "altered"),
            ("ValueError", ValueError, "bad value"),
            ("TypeError", TypeError, "bad type"),
            ("KeyError", KeyError, "'missing'"),
            ("UnicodeDecodeError", ValueError, "odd"),
        ],
    )
    def test_known_errors_arrive_as_they_are(self, name, kind, text):
        with serve(fail, authkey=KEY) as server:
            client = Client(server.address, KEY)
            with pytest.raises(kind) as caught:
                client.ask({"error": name})
            assert type(caught.value) is kind
            assert text in str(caught.value)
            client.close()

    @pytest.mark.parametrize("name", ["OSError", "ZeroDivisionError"])
    def test_other_errors_lose_their_text(self, name):
        with serve(fail, authkey=KEY) as server:
            client = Client(server.address, KEY)
            for _ in range(2):
                with pytest.raises(RuntimeError, match=name) as caught:
                    client.ask({"error": name})
                assert "secret" not in str(caught.value)
            client.close()


class TestKeys:
    def test_wrong_key_is_turned_away_on_both_sides(self, server):
        with pytest.raises(AuthenticationError, match="holds another key"):
            Client(server.address, b"another key").ask({})
        assert Client(server.address, KEY).ask({"a": 1})[0] == {"a": 1}

    def test_server_without_the_key_learns_nothing(self, tmp_path):
        asked = []
        impostor = serve(lambda *message: asked.append(message), tmp_path / "s", b"impostor's key")
        with pytest.raises(AuthenticationError):
            Client(impostor.address, KEY).ask({"secret": 1})
        impostor.close()
        assert not asked

    def test_proof_of_one_side_does_not_serve_as_the_others(self, tmp_path):
        # Reflect the client's own proof back at it.
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def reflect():
            from multiprocessing.connection import Connection

            connection = Connection(listening.accept()[0].detach())
            connection.send_bytes(b"sklearn_fairleak wire 1:" + bytes(32))
            connection.send_bytes(connection.recv_bytes()[32:])
            connection.close()

        thread = threading.Thread(target=reflect)
        thread.start()
        with pytest.raises(AuthenticationError):
            Client(str(tmp_path / "s"), KEY).ask({})
        thread.join()
        listening.close()

    @pytest.mark.parametrize(
        ("key", "kind"), [("text", TypeError), (b"", ValueError), (b"short", ValueError)]
    )
    def test_weak_keys(self, key, kind):
        with pytest.raises(kind, match="authkey must"):
            Client("x", key)
        with pytest.raises(kind, match="authkey must"):
            serve(echo, authkey=key)

    def test_random_key_by_default(self):
        with serve(echo) as one, serve(echo) as two:
            assert one.authkey != two.authkey
            assert len(one.authkey) == 32
            assert one.authkey.hex() not in repr(one)
            assert KEY.decode() not in repr(Client(one.address, KEY))


class TestAddresses:
    def test_default_is_private_and_goes_away(self):
        with serve(echo) as server:
            folder = os.path.dirname(server.address)
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
            assert stat.S_IMODE(os.stat(server.address).st_mode) == 0o600
        assert not os.path.exists(folder)

    def test_named_socket_file(self, tmp_path):
        with serve(echo, tmp_path / "auditor", KEY) as server:
            assert server.address == str(tmp_path / "auditor")
            assert stat.S_IMODE(os.stat(server.address).st_mode) == 0o600
            assert Client(tmp_path / "auditor", KEY).ask({"a": 1})[0] == {"a": 1}
            with pytest.raises(FileExistsError, match="in use"):
                serve(echo, tmp_path / "auditor", KEY)
            assert Client(server.address, KEY).ask({"a": 2})[0] == {"a": 2}
        assert not (tmp_path / "auditor").exists()

    def test_stale_socket_file_is_replaced(self, tmp_path):
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(tmp_path / "s"))
        stale.close()
        with serve(echo, tmp_path / "s", KEY) as server:
            assert Client(server.address, KEY).ask({})[0] == {}

    def test_other_files_are_never_removed(self, tmp_path):
        (tmp_path / "s").write_text("precious")
        with pytest.raises(FileExistsError):
            serve(echo, tmp_path / "s", KEY)
        assert (tmp_path / "s").read_text() == "precious"
        with pytest.raises(FileNotFoundError, match="its folder exists"):
            serve(echo, tmp_path / "no" / "s", KEY)

    def test_tcp(self):
        with serve(echo, ("localhost", 0), KEY) as server:
            host, port = server.address
            assert (host, port) == ("127.0.0.1", server.address[1])
            sent = np.arange(100_000)
            _, (got,) = Client(["localhost", port], KEY).ask({}, [sent])
            np.testing.assert_array_equal(got, sent)
            with pytest.raises(OSError):
                serve(echo, ("localhost", port), KEY)

    def test_serving_to_other_machines_warns(self):
        with pytest.warns(UserWarning, match="not encrypted"):
            serve(echo, ("0.0.0.0", 0), KEY).close()

    @pytest.mark.parametrize("address", ["", 5, (), ("localhost",), ("localhost", "x"), "x" * 200])
    def test_malformed(self, address):
        with pytest.raises(ValueError):
            Client(address, KEY)
        with pytest.raises(ValueError):
            serve(echo, address, KEY)


class TestServerGone:
    def test_nobody_there(self, tmp_path):
        with pytest.raises(ConnectionError, match=r"The auditor at .* is not reachable"):
            Client(tmp_path / "nobody", KEY).ask({})
        with pytest.raises(ConnectionError, match="is not reachable"):
            Client(("localhost", 1), KEY).ask({})

    def test_closed_under_a_client_and_back_again(self, tmp_path):
        client = Client(tmp_path / "s", KEY)
        with serve(echo, tmp_path / "s", KEY):
            client.ask({})
        for _ in range(2):
            with pytest.raises(ConnectionError, match="is not reachable"):
                client.ask({})
        with serve(echo, tmp_path / "s", KEY):
            assert client.ask({"a": 1})[0] == {"a": 1}
        client.close()

    def test_closed_while_a_question_is_open(self):
        began = threading.Event()

        def slow(header, arrays):
            began.set()
            time.sleep(0.3)
            return {}, []

        server = serve(slow, authkey=KEY)
        failed = []

        def ask():
            try:
                Client(server.address, KEY).ask({})
            except ConnectionError as error:
                failed.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        began.wait(10)
        server.close()
        thread.join(10)
        assert len(failed) == 1

    def test_close_twice_and_serve_forever(self):
        server = serve(echo)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.close()
        server.close()
        thread.join(10)
        assert not thread.is_alive()

    def test_threads_end(self):
        before = threading.active_count()
        with serve(echo, authkey=KEY) as server:
            clients = [Client(server.address, KEY) for _ in range(5)]
            for client in clients:
                client.ask({})
        stop = time.monotonic() + 10
        while threading.active_count() > before and time.monotonic() < stop:
            time.sleep(0.01)
        assert threading.active_count() <= before
        for client in clients:
            client.close()

    def test_socket_file_goes_with_the_process(self):
        code = (
            "import os\n"
            "from sklearn_fairleak.transport import serve\n"
            "server = serve(lambda header, arrays: (header, arrays))\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    raise SystemExit(0)\n"
            "os.waitpid(child, 0)\n"
            "print(os.path.exists(server.address), server.address)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        existed, address = done.stdout.split()
        assert existed == "True"
        assert not os.path.exists(os.path.dirname(address))

    def test_interrupted_question_does_not_shift_answers(self, server):
        client = Client(server.address, KEY)
        with serve(lambda header, arrays: (time.sleep(0.5), (header, arrays))[1], authkey=KEY) as slow:
            client = Client(slow.address, KEY)

            def interrupt(number, frame):
                raise KeyboardInterrupt

            previous = signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                with pytest.raises(KeyboardInterrupt):
                    client.ask({"question": 1})
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, previous)
            assert client.ask({"question": 2})[0] == {"question": 2}
            client.close()


class Boom:
    """Pickles into a call that leaves a trace."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def raw_connection(server):
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(server.address)
    raw.settimeout(10)
    return raw


def framed(block):
    return struct.pack("!i", len(block)) + block


class TestHostileBytes:
    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"\x00",
            b"GET / HTTP/1.1\r\n\r\n",
            os.urandom(1000),
            struct.pack("!i", -1) + struct.pack("!Q", 2**63),
            struct.pack("!i", 2**31 - 1),
            struct.pack("!i", -5),
            framed(b""),
            framed(b"x" * 64),
            framed(b"x" * 300),
        ],
    )
    def test_strangers_are_cut_off(self, server, sent):
        with contextlib.closing(raw_connection(server)) as raw:
            with contextlib.suppress(OSError):
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while block := raw.recv(4096):
                    received += block
        assert len(received) < 200
        assert Client(server.address, KEY).ask({"fine": 1})[0] == {"fine": 1}

    def test_silent_strangers_hold_nothing(self, server):
        silent = [raw_connection(server) for _ in range(20)]
        assert Client(server.address, KEY).ask({"fine": 1})[0] == {"fine": 1}
        for raw in silent:
            raw.close()

    def test_silence_ends_the_handshake(self, monkeypatch):
        monkeypatch.setattr("sklearn_fairleak.handshake._HANDSHAKE_SECONDS", 1)
        with serve(echo, authkey=KEY) as server, contextlib.closing(raw_connection(server)) as raw:
            raw.send(b"\x00")
            raw.recv(4096)
            assert raw.recv(4096) == b""

    @pytest.mark.parametrize(
        "block",
        [
            b"",
            b"garbage",
            b"[]",
            b"{}",
            b"null",
            b'{"header": [], "arrays": []}',
            b'{"header": {}, "arrays": {}}',
            b'{"header": {}, "arrays": [["|O", [1]]]}',
            b'{"header": {}, "arrays": [["<i8", [-1]]]}',
            b'{"header": {}, "arrays": [["<i8", [1.5]]]}',
            b'{"header": {}, "arrays": [["<i8", [true]]]}',
            b'{"header": {}, "arrays": [["<i8", "12"]]}',
            b'{"header": {}, "arrays": [["<i8", [1, 1, 1, 1, 1]]]}',
            b'{"header": {}, "arrays": [["<i8", [9000000000000]]]}',
            b'{"header": {}, "arrays": [["<i8", [1000000, 1000000, 1000000, 1000000]]]}',
            b'{"header": {}, "arrays": [["<i8"]]}',
            b'{"header": {}, "arrays": [["<M8[ns]", [1]]]}',
            b'{"header": {}, "arrays": [["<c16", [1]]]}',
            b'{"header": {}, "arrays": [[["a", "<i8"], [1]]]}',
            b'{"header": {}, "arrays": [' + b",".join([b'["<i8", [0]]'] * 65) + b"]}",
            b"[" * 100_000,
            b'{"header": {"x": ' + b"9" * 10_000 + b'}, "arrays": []}',
            b"\xff\xfe",
        ],
    )
    def test_malformed_messages_are_answered_with_an_error(self, server, block):
        connection = dial(server.address, KEY)
        connection.send_bytes(block)
        reply = json.loads(connection.recv_bytes())
        assert reply["header"]["error"][0] == "ValueError"
        with pytest.raises((EOFError, OSError)):
            connection.recv_bytes()
        connection.close()
        assert Client(server.address, KEY).ask({"fine": 1})[0] == {"fine": 1}

    @pytest.mark.parametrize(
        ("announced", "block"),
        [
            (b'["<i8", [2]]', b"x" * 15),
            (b'["<i8", [2]]', b"x" * 17),
            (b'["|b1", [2]]', b"\x00\x02"),
            (b'["<U1", [1]]', b"\xff\xff\xff\xff"),
        ],
    )
    def test_malformed_arrays(self, server, announced, block):
        connection = dial(server.address, KEY)
        connection.send_bytes(b'{"header": {}, "arrays": [' + announced + b"]}")
        connection.send_bytes(block)
        with contextlib.suppress(EOFError, OSError):
            assert json.loads(connection.recv_bytes())["header"]["error"][0] == "ValueError"
        connection.close()
        assert Client(server.address, KEY).ask({"fine": 1})[0] == {"fine": 1}

    def test_huge_block_is_not_read(self, server):
        connection = dial(server.address, KEY)
        os.write(connection.fileno(), struct.pack("!i", -1) + struct.pack("!Q", 2**62))
        assert json.loads(connection.recv_bytes())["header"]["error"][0] == "ValueError"
        with pytest.raises((EOFError, OSError)):
            connection.recv_bytes()
        connection.close()
        assert Client(server.address, KEY).ask({"fine": 1})[0] == {"fine": 1}

    def test_pickles_are_not_loaded(self, server, tmp_path):
        for number, wrap in enumerate(
            [
                lambda raw: raw,
                lambda raw: b'{"header": {}, "arrays": [["|O", [1]]]}' + raw,
            ]
        ):
            trace = tmp_path / f"trace{number}"
            connection = dial(server.address, KEY)
            connection.send_bytes(wrap(pickle.dumps(Boom(trace))))
            connection.recv_bytes()
            connection.close()
            assert not trace.exists()
        pickle.loads(pickle.dumps(Boom(tmp_path / "trace")))
        assert (tmp_path / "trace").exists()

    def test_pickles_from_a_server_are_not_loaded(self, tmp_path, monkeypatch):
        trace = tmp_path / "trace"
        monkeypatch.setattr(
            transport, "send_message", lambda connection, *_: connection.send_bytes(pickle.dumps(Boom(trace)))
        )
        with serve(echo, authkey=KEY) as server:
            connection = dial(server.address, KEY)
            connection.send_bytes(b'{"header": {}, "arrays": []}')
            with pytest.raises(transport.MalformedMessage):
                transport.receive_message(connection)
            connection.close()
        assert not trace.exists()


def ask_often(address, name, results):
    client = Client(address, KEY)
    wrong = 0
    for k in range(50):
        reply, (got,) = client.ask({"who": name, "k": k}, [np.full(1000, name * 1000 + k)])
        wrong += reply != {"who": name, "k": k} or not (got == name * 1000 + k).all()
    results.put(wrong)


class TestManyClients:
    def test_from_processes(self, server):
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        processes = [
            context.Process(target=ask_often, args=(server.address, name, results)) for name in range(6)
        ]
        for process in processes:
            process.start()
        assert [results.get(timeout=60) for _ in processes] == [0] * 6
        for process in processes:
            process.join()

    def test_threads_share_a_client(self, client):
        wrong = []

        def work(name):
            for k in range(50):
                reply, (got,) = client.ask({"k": name + k}, [np.array([name + k])])
                if reply["k"] != name + k or got[0] != name + k:
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(1000 * name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_slow_question_does_not_hold_up_others(self):
        release = threading.Event()

        def handler(header, arrays):
            if header.get("wait"):
                release.wait(30)
            return {}, []

        with serve(handler, authkey=KEY) as server:
            thread = threading.Thread(target=Client(server.address, KEY).ask, args=({"wait": True},))
            thread.start()
            Client(server.address, KEY).ask({})
            release.set()
            thread.join(30)
            assert not thread.is_alive()

    def test_no_thread_to_spare(self, server, monkeypatch):
        def refuse(thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(ConnectionError, match="is not reachable"):
                Client(server.address, KEY).ask({})
        assert Client(server.address, KEY).ask({"a": 1})[0] == {"a": 1}

    def test_clients_that_come_while_it_closes(self, tmp_path):
        for _ in range(20):
            server = serve(echo, authkey=KEY)
            ended = []

            def ask(server=server, ended=ended):
                try:
                    for _ in range(100):
                        Client(server.address, KEY).ask({})
                except (ConnectionError, AuthenticationError):
                    ended.append(1)

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.005)
            server.close()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
            assert len(ended) == 3

    def test_client_in_a_forked_child(self, client):
        client.ask({"before": 1})
        children = []
        for name in range(4):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    replies = [client.ask({"child": name, "k": k})[0] for k in range(30)]
                    status = 0 if replies == [{"child": name, "k": k} for k in range(30)] else 2
                finally:
                    os._exit(status)
            children.append(child)
        for k in range(30):
            assert client.ask({"parent": k})[0] == {"parent": k}
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4

    def test_fork_of_the_server_does_not_keep_it_open(self, tmp_path):
        server = serve(echo, tmp_path / "s", KEY)
        client = Client(server.address, KEY)
        client.ask({})
        go = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go[0], 1)
            os._exit(0)
        server.close()
        with pytest.raises(ConnectionError):
            client.ask({})
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        for end in go:
            os.close(end)
