"""One layer of repeated requests for all stores: what may pass is tried again for a bounded time, the rest leaves.

Pauses are "full jitter": uniform between 0 and `BASE_SECONDS * 2**tries`, at most `MAX_PAUSE_SECONDS` (Brooker,
"Exponential backoff and jitter", AWS Architecture Blog, 2015): many workers that were refused together do not come back
together. A request gives up at its deadline, and a task once too many of its requests were repeats: what the store then
needs is less work, not more patience.
"""

from __future__ import annotations

import errno
import random
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from corpus.engine.errors import SetupError, TransientError, WenhaiError

BASE_SECONDS = 0.2  # some round trips: most faults are gone after the first pause
MAX_PAUSE_SECONDS = 30.0
DEADLINE_SECONDS = 600.0  # of one request: a store that splits a busy prefix says "slow down" for minutes
FIRST_DEADLINE_SECONDS = 60.0  # while no store has answered this process yet: the address may be wrong
REPEATS, REPEATED_SHARE = 200, 0.2  # of a task: a store that refuses more is down, or this run is too much for it

# What may pass, beside statuses: S3's codes for a body cut on its way, another request at the same object, and the end
# of an upload made twice.
CODES = set(
    "IncompleteBody XAmzContentSHA256Mismatch RequestTimeout OperationAborted ConditionalRequestConflict".split()
)
CODES.add("NoSuchUpload")
STATUSES = {408, 429, 500, 502, 503, 504}
ERRNOS = {
    errno.EBUSY: "503",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "connection",
    errno.ENETUNREACH: "connection",
}
NAMES = {  # by names of classes and of those they derive from, in libraries that are not imported for this
    "timeout": {"TimeoutError", "Timeout"},
    "cut": {"IncompleteRead", "ClientPayloadError", "ChunkedEncodingError", "ChecksumError"},
    "connection": {"ConnectionError", "HTTPClientError", "ClientConnectionError", "ResponseParserError"}
    | {"ServiceRequestError", "ServiceResponseError", "TransportError"},
}
# Credentials have ended: S3's codes ("400" is its answer to HEAD, which has no body), and errors of libraries.
ENDED = set("ExpiredToken ExpiredTokenException InvalidAccessKeyId InvalidToken TokenRefreshRequired 400".split())
ENDED |= {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "RefreshError"}
SECRETS = (  # user:password@, the parameters of a presigned URL, and what is named so elsewhere
    re.compile(r"(://)[^/@\s]+(?=@)"),
    re.compile(r"([?&][\w.-]+=)[^&\s'\")>]+"),
    re.compile(r"(?i)((?:secret|password|token|signature|access_?key)\w*['\"]?(?:=|: ?['\"])['\"]?)[^\s'\"&,)]+"),
)

Result = TypeVar("Result")


@dataclass
class RequestCounts:
    """Requests of this process to stores: tries made, those of them that were made again by what had failed, and the
    seconds of the pauses before (of all threads)."""

    requests: int = 0
    repeated: dict[str, int] = field(default_factory=dict)
    paused_seconds: float = 0.0

    def add(self, other: RequestCounts) -> None:
        """Add those of another task."""
        self.requests += other.requests
        self.paused_seconds += other.paused_seconds
        for kind, count in other.repeated.items():
            self.repeated[kind] = self.repeated.get(kind, 0) + count


_counts = RequestCounts()
_lock = threading.Lock()
_has_answered = False
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))
_leaving: ContextVar[threading.Event] = ContextVar("leaving", default=threading.Event())  # noqa: B039 (never set)


def take_request_counts() -> RequestCounts:
    """The counts since they were last taken; a task's budget of repeats begins anew."""
    global _counts
    with _lock:
        taken, _counts = _counts, RequestCounts()
    return taken


@contextmanager
def within(seconds: float, leaving: threading.Event | None = None) -> Iterator[None]:
    """End the requests of the block after so long, all together, and their pauses when `leaving` is set."""
    before = _deadline.set(min(_deadline.get(), time.monotonic() + seconds)), _leaving.set(leaving or _leaving.get())
    try:
        yield
    finally:
        _deadline.reset(before[0])
        _leaving.reset(before[1])


@contextmanager
def request_threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for requests; an error or Ctrl-C in the block ends their pauses, so that nobody waits for a store."""
    leaving = threading.Event()
    with ThreadPoolExecutor(number, initializer=_leaving.set, initargs=(leaving,)) as pool:
        try:
            yield pool
        except BaseException:
            leaving.set()
            pool.shutdown(cancel_futures=True)
            raise


def call(function: Callable[[], Result], operation: str, url: str, *, is_counted: bool = True) -> Result:
    """Make a request until it succeeds.

    Args:
        is_counted: not where `patient` counts what the request consists of.

    Raises:
        TransientError: the budget of the request or of its task is spent.
        SetupError: the store does not take the credentials any longer.
        Exception: what the store says besides, without secrets.
    """
    request = _Request(operation, url)
    while True:
        try:
            request.begin(is_counted)
            result = function()
        except Exception as error:
            pause = request.pause(error)
        else:
            request.has_ended()
            return result
        _pause(pause)


def patient(call_s3: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """`S3FileSystem._call_s3` with `call`'s manners: each page of a listing and each part of an upload by itself."""

    async def call(method: str, *arguments: Any, **options: Any) -> Any:
        key = options.get("Key", options.get("Prefix", ""))
        request = _Request(method, f"s3://{options.get('Bucket', '')}/{key}")
        while True:
            try:
                request.begin()
                result = await call_s3(method, *arguments, **options)
            except Exception as error:
                if method in ("complete_multipart_upload", "abort_multipart_upload"):
                    raise  # made twice, it finds no such upload: the whole is repeated
                pause = request.pause(error)
            else:
                request.has_ended()
                return result
            await _pause_in_loop(pause)

    return call


def kind_of(error: BaseException) -> str | None:
    """What may pass by itself: a status ("503"), "timeout", "connection" or "cut"; None for what will not."""
    code, status = _answer(error)
    is_certificate = any(isinstance(one, ssl.SSLCertVerificationError) for one in (error, error.__context__))
    if isinstance(error, WenhaiError) or is_certificate or type(error).__name__ == "FileExpired":  # s3fs: has changed
        return None
    if status:
        return str(status) if status in STATUSES or code in CODES else None
    names = {base.__name__ for base in type(error).__mro__}
    found = next((kind for kind, known in NAMES.items() if names & known), None)
    return found or ERRNOS.get(getattr(error, "errno", None) or 0)


def redacted(text: str) -> str:
    """A text without passwords, signatures and tokens.

    >>> redacted("https://me:pass@host/a?X-Amz-Signature=0a1b refused")
    'https://***@host/a?X-Amz-Signature=*** refused'
    """
    for pattern in SECRETS:
        text = pattern.sub(r"\1***", text)
    return text


class _Request:
    """One request and its tries."""

    def __init__(self, operation: str, url: str) -> None:
        self._operation, self._url = operation, url
        self._began, self._tries = time.monotonic(), 0

    def begin(self, is_counted: bool = True) -> None:
        self._tries += 1
        with _lock:
            _counts.requests += is_counted

    def has_ended(self) -> None:
        global _has_answered
        _has_answered = True

    def pause(self, error: Exception) -> float:
        """Seconds until the next try; raises what has to leave where there is none."""
        kind = kind_of(error)
        if kind is None:
            self._refuse(error)
        if _leaving.get().is_set():
            raise error
        what = f"{redacted(self._url)}: {self._operation} failed"
        said = f"{type(error).__name__}: {redacted(str(error))[:300]}"
        most = min(MAX_PAUSE_SECONDS, BASE_SECONDS * 2 ** min(self._tries - 1, 30))
        seconds, now = random.SystemRandom().uniform(0, most), time.monotonic()
        last = self._began + (DEADLINE_SECONDS if _has_answered else FIRST_DEADLINE_SECONDS)
        if now + seconds > min(last, _deadline.get()):
            raise TransientError(
                f"{what} {self._tries} times in {now - self._began:.0f} s, the last time with {said}. Look at the "
                "store and the network, then run the same command again: finished work is kept."
            ) from None
        with _lock:
            repeats, requests = sum(_counts.repeated.values()), _counts.requests
            if repeats < REPEATS + REPEATED_SHARE * requests:
                _counts.repeated[kind] = _counts.repeated.get(kind, 0) + 1
                _counts.paused_seconds += seconds
                return seconds
        raise TransientError(
            f"{what} {self._tries} times, the last time with {said}, and {repeats:,} of the task's {requests:,} "
            "requests were repeats. Run the same command again later or with fewer workers: finished work is kept."
        ) from None

    def _refuse(self, error: Exception) -> NoReturn:
        self.has_ended()
        text, (code, status) = redacted(str(error)), _answer(error)
        if isinstance(error, WenhaiError):
            raise error
        if status == 401 or {code, type(error).__name__} & ENDED:
            raise SetupError(
                f"{redacted('/'.join(self._url.split('/', 3)[:3]))}: does not take these credentials, or no longer "
                f"({type(error).__name__}: {text}). Renew them, then run the same command again: finished work is kept."
            ) from None
        if text == str(error):
            raise error
        kinds = (FileNotFoundError, FileExistsError, PermissionError, OSError)
        raise next((kind for kind in kinds if isinstance(error, kind)), OSError)(text) from None


def _answer(error: BaseException) -> tuple[str, int]:
    """The code and the status of a store's answer, also of one that a library has put into other words; "" and 0 where
    there was none."""
    at: BaseException | None = error
    while at is not None:
        response = getattr(at, "response", None)
        if isinstance(response, dict):  # botocore's ClientError
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(response.get("Error", {}).get("Code", ""))
            return code, int(status or (code if code.isdecimal() else 400))
        at = at.__cause__
    for name in ("status", "status_code", "code"):  # aiohttp's, Azure's, Google's
        value = str(getattr(error, name, ""))
        if value.isdecimal() and int(value) >= 400:
            return "", int(value)
    return "", 0


def _pause(seconds: float) -> None:
    _leaving.get().wait(seconds)


async def _pause_in_loop(seconds: float) -> None:
    import asyncio  # it is there already where this is called

    leaving, end = _leaving.get(), time.monotonic() + seconds
    while not leaving.is_set() and (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, 0.5))
