"""What passes is tried again, with growing pauses and for a bounded time; what does not pass is not tried again."""

from __future__ import annotations

import asyncio
import errno
import http.client
import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest

from corpus.engine import retries
from corpus.engine.errors import SetupError, TransientError, WenhaiError

URL = "s3://bucket/a/b.jsonl"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    retries.take_request_counts()
    monkeypatch.setattr(retries, "_has_answered", True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are made: they pass at once, on a clock that nothing else moves."""
    made: list[float] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return sum(made)

    monkeypatch.setattr(retries, "time", Clock)
    monkeypatch.setattr(retries, "_pause", made.append)
    return made


def failing(times: int, error: Callable[[], Exception]) -> Callable[[], int]:
    """A request that fails so often; returns how often it was made."""
    made = 0

    def request() -> int:
        nonlocal made
        made += 1
        if made <= times:
            raise error()
        return made

    return request


def answer(code: str, status: int, *, is_translated: bool = True) -> Exception:
    """A store's refusal as s3fs raises it."""
    errors = pytest.importorskip("s3fs.errors")
    from botocore.exceptions import ClientError

    response = {"Error": {"Code": code, "Message": "words"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error = ClientError(response, "GetObject")
    return errors.translate_boto_error(error) if is_translated else error  # type: ignore[no-any-return]


def of_libraries() -> dict[str, tuple[Exception, str | None]]:
    aiohttp, botocore = pytest.importorskip("aiohttp"), pytest.importorskip("botocore.exceptions")
    from fsspec.exceptions import FSTimeoutError
    from s3fs.utils import FileExpired

    class HttpError(Exception):  # gcsfs'
        def __init__(self, code: int | str) -> None:
            self.code = code

    certificate = botocore.SSLError(endpoint_url="u", error="e")
    certificate.__context__ = ssl.SSLCertVerificationError()
    changed = WenhaiError("has changed")
    changed.__cause__ = answer("SlowDown", 503)
    return {
        "slow down": (answer("SlowDown", 503), "503"),
        "slow down, raw": (answer("SlowDown", 503, is_translated=False), "503"),
        "HEAD has no code": (answer("503", 503), "503"),
        "500": (answer("InternalError", 500), "500"),
        "502": (answer("BadGateway", 502), "502"),
        "504": (answer("504", 504), "504"),
        "429": (answer("TooManyRequests", 429), "429"),
        "slow upload": (answer("RequestTimeout", 400), "400"),
        "cut upload": (answer("IncompleteBody", 400), "400"),
        "two at once": (answer("ConditionalRequestConflict", 409), "409"),
        "upload ended twice": (answer("NoSuchUpload", 404), "404"),
        "no key": (answer("NoSuchKey", 404), None),
        "no bucket": (answer("NoSuchBucket", 404), None),
        "denied": (answer("AccessDenied", 403), None),
        "clock": (answer("RequestTimeTooSkewed", 403), None),
        "ended": (answer("ExpiredToken", 400), None),
        "there": (answer("PreconditionFailed", 412), None),
        "range": (answer("InvalidRange", 416), None),
        "bad": (answer("InvalidArgument", 400), None),
        "another object": (FileExpired("b", "e"), None),
        "Google, 503": (HttpError(503), "503"),
        "Google, text": (HttpError("429"), "429"),
        "Google, 400": (HttpError(400), None),
        "cut body": (aiohttp.ClientPayloadError("not enough data"), "cut"),
        "hung up": (aiohttp.ServerDisconnectedError(), "connection"),
        "botocore hung up": (botocore.ConnectionClosedError(endpoint_url="u"), "connection"),
        "no route": (botocore.EndpointConnectionError(endpoint_url="u"), "connection"),
        "no connection in time": (botocore.ConnectTimeoutError(endpoint_url="u"), "timeout"),
        "no answer in time": (botocore.ReadTimeoutError(endpoint_url="u"), "timeout"),
        "half an XML": (pytest.importorskip("botocore.parsers").ResponseParserError(), "connection"),
        "a false certificate": (certificate, None),
        "a false certificate, raw": (ssl.SSLCertVerificationError(), None),
        "no credentials": (botocore.NoCredentialsError(), None),
        "fsspec's own": (FSTimeoutError(), "timeout"),
        "ours": (changed, None),
    }


OF_PYTHON = {
    "reset": (ConnectionResetError(), "connection"),
    "refused": (ConnectionRefusedError(), "connection"),
    "pipe": (BrokenPipeError(), "connection"),
    "timeout": (TimeoutError(), "timeout"),
    "incomplete": (http.client.IncompleteRead(b""), "cut"),
    "busy": (OSError(errno.EBUSY, "Please reduce your request rate."), "503"),
    "unreachable": (OSError(errno.ENETUNREACH, "words"), "connection"),
    "missing": (FileNotFoundError(), None),
    "full": (OSError(errno.ENOSPC, "words"), None),
    "disk": (OSError(errno.EIO, "words"), None),
    "mistake": (TypeError(), None),
}


def test_what_may_pass_is_told_from_what_does_not() -> None:
    for name, (error, kind) in (of_libraries() | OF_PYTHON).items():
        assert retries.kind_of(error) == kind, name


@pytest.mark.parametrize("name", OF_PYTHON)
def test_only_what_may_pass_is_tried_again(name: str, pauses: list[float]) -> None:
    error, kind = OF_PYTHON[name]
    request = failing(2, lambda: error)
    if kind is None:
        with pytest.raises(type(error)) as raised:
            retries.call(request, "read", URL)
        assert raised.value is error and not pauses
        assert retries.take_request_counts() == retries.RequestCounts(requests=1)
    else:
        assert retries.call(request, "read", URL) == 3
        assert retries.take_request_counts() == retries.RequestCounts(3, {kind: 2}, sum(pauses))
        assert retries.take_request_counts() == retries.RequestCounts()


def test_pauses_grow_with_full_jitter_until_the_deadline(pauses: list[float]) -> None:
    with pytest.raises(TransientError) as raised:
        retries.call(failing(10**9, lambda: ConnectionResetError("by peer")), "read", URL)
    most = [min(30.0, 0.2 * 2**tries) for tries in range(len(pauses))]
    assert all(0 <= pause <= bound for pause, bound in zip(pauses, most, strict=True))
    assert 0.2 < sum(pauses) / sum(most) < 0.8 and len({*pauses}) == len(pauses)
    assert 570 <= sum(pauses) <= 600
    words = f"{URL}: read failed {len(pauses) + 1} times in {sum(pauses):.0f} s, the last time with "
    assert str(raised.value).startswith(words + "ConnectionResetError: by peer. Look at the store")
    assert "same command again" in str(raised.value)


def test_a_store_that_has_never_answered_is_given_up_sooner(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_has_answered", False)
    with pytest.raises(TransientError):
        retries.call(failing(10**9, ConnectionRefusedError), "read", URL)
    assert 30 <= sum(pauses) <= 60
    with pytest.raises(FileNotFoundError):  # which is an answer
        retries.call(failing(1, FileNotFoundError), "read", URL)
    before = sum(pauses)
    with pytest.raises(TransientError):
        retries.call(failing(10**9, ConnectionRefusedError), "read", URL)
    assert sum(pauses) - before > 60


def test_a_task_repeats_a_bounded_share_of_its_requests(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "REPEATS", 4)
    for _ in range(10):
        retries.call(failing(0, TimeoutError), "read", URL)
    retries.call(failing(6, TimeoutError), "read", URL)  # 4 and a fifth of 10 and more
    with pytest.raises(
        TransientError, match=r"read failed \d times, the last time with TimeoutError.* of the task's .* fewer workers"
    ):
        for _ in range(9):
            retries.call(failing(6, TimeoutError), "read", URL)
    counts = retries.take_request_counts()
    assert 4 + 0.2 * counts.requests - 1 <= counts.repeated["timeout"] <= 4 + 0.2 * counts.requests + 1
    assert retries.call(failing(4, TimeoutError), "read", URL) == 5  # the next task has a budget of its own


def test_the_requests_of_a_block_end_together(pauses: list[float]) -> None:
    with retries.within(5):
        for _ in range(2):
            with pytest.raises(TransientError):
                retries.call(failing(10**9, TimeoutError), "read", URL)
    assert sum(pauses) <= 5
    assert retries.call(failing(20, TimeoutError), "read", URL) == 21


def test_ended_credentials_name_the_store_and_how_to_go_on(pauses: list[float]) -> None:
    errors = [answer("ExpiredToken", 400), answer("400", 400), answer("InvalidAccessKeyId", 403)]
    for error in [*errors, of_libraries()["no credentials"][0]]:
        request = failing(1, lambda error=error: error)  # type: ignore[misc]
        with pytest.raises(SetupError, match=r"^s3://bucket: does not take these credentials.*same command again"):
            retries.call(request, "read", URL)
    assert not pauses
    with pytest.raises(PermissionError):  # one object may be another's
        retries.call(failing(1, lambda: answer("AccessDenied", 403)), "read", URL)


SECRET = "https://me:h0use@store/b?X-Amz-Signature=h0use&X-Amz-Security-Token=h0use: aws_secret_access_key='h0use'"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(SECRET),
        FileNotFoundError(SECRET),
        PermissionError(errno.EACCES, SECRET),
        ValueError(SECRET),
    ],
)
def test_no_secret_leaves(error: Exception, pauses: list[float]) -> None:
    with pytest.raises(Exception, match=r"https://\*\*\*@store/b\?X-Amz-Signature=\*\*\*") as raised:
        retries.call(failing(10**9, lambda: error), "read", "s3://key:h0use@bucket/a?token=h0use")
    assert "h0use" not in str(raised.value)
    assert raised.value.__suppress_context__ and raised.value.__cause__ is None
    wanted: dict[type[Exception], type[Exception]] = {ConnectionResetError: TransientError, ValueError: OSError}
    assert type(raised.value) is wanted.get(type(error), type(error))


@pytest.mark.timeout(60)
def test_an_interruption_ends_the_pauses_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "BASE_SECONDS", 20.0)  # of three tries at least one pause is long
    monkeypatch.setattr(retries, "MAX_PAUSE_SECONDS", 20.0)
    monkeypatch.setattr(retries, "DEADLINE_SECONDS", 30.0)
    began, results = threading.Event(), []

    def request() -> None:
        began.set()
        raise ConnectionResetError

    with pytest.raises(KeyboardInterrupt), retries.request_threads(2) as pool:
        results = [pool.submit(retries.call, request, "read", URL) for _ in range(4)]
        began.wait()
        raise KeyboardInterrupt
    assert all(result.cancelled() or isinstance(result.exception(), ConnectionResetError) for result in results)


def test_requests_of_many_threads_are_all_counted(pauses: list[float]) -> None:
    def one(_: Any) -> int:
        return retries.call(failing(1, TimeoutError), "read", URL)

    with retries.request_threads(8) as pool:
        assert set(pool.map(one, range(150))) == {2}
    counts = retries.take_request_counts()
    assert (counts.requests, counts.repeated) == (300, {"timeout": 150})


def test_the_end_of_an_upload_is_not_made_twice_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer was lost: a second try would find no such upload, for ever."""
    monkeypatch.setattr(retries, "BASE_SECONDS", 0.0)
    made: list[str] = []

    async def call_s3(method: str, **options: str) -> str:
        made.append(method)
        if len(made) < 3:
            raise ConnectionResetError
        return f"{method} of {options['Key']}"

    call = retries.patient(call_s3)
    with pytest.raises(ConnectionResetError):
        asyncio.run(call("complete_multipart_upload", Bucket="bucket", Key="a"))  # type: ignore[arg-type]
    assert asyncio.run(call("upload_part", Bucket="bucket", Key="a")) == "upload_part of a"  # type: ignore[arg-type]
    assert made == ["complete_multipart_upload", "upload_part", "upload_part"]
