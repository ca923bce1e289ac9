"""The requests that wait, in the order in which the policy serves them."""

from __future__ import annotations

import bisect

from pinfer.runtime.core.engine_config import SchedulingPolicy
from pinfer.runtime.core.request import Request

# Position under FCFS (0 under PRIORITY), then what orders PRIORITY.
_Key = tuple[int, int, float, bytes]


class RequestQueue:
    """FCFS: a double-ended queue. PRIORITY: ordered by priority, arrival time, then id as a
    string."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._keys: list[_Key] = []  # sorted
        self._requests: dict[_Key, Request] = {}
        self._key_of: dict[str, _Key] = {}  # by request id
        self._front = 0  # the smallest position given
        self._back = 0  # one more than the greatest

    def add_request(self, request: Request) -> None:
        """A request that arrives: at the back under FCFS."""
        self._insert(request, self._back)
        self._back += 1

    def prepend_request(self, request: Request) -> None:
        """A preempted request: at the front under FCFS."""
        self._front -= 1
        self._insert(request, self._front)

    def remove_request(self, request: Request) -> None:
        """No effect if it does not wait here."""
        key = self._key_of.pop(request.request_id, None)
        if key is None:
            return
        del self._keys[bisect.bisect_left(self._keys, key)]
        del self._requests[key]

    def peek_request(self) -> Request:
        return self._requests[self._keys[0]]

    def pop_request(self) -> None:
        self.remove_request(self.peek_request())

    def __len__(self) -> int:
        return len(self._keys)

    def request_ids(self) -> list[str]:
        """In order."""
        return [self._requests[key].request_id for key in self._keys]

    def _insert(self, request: Request, position: int) -> None:
        request_id = request.request_id.encode()  # compared as bytes, as in C++
        if self._policy is SchedulingPolicy.FCFS:
            key: _Key = (position, 0, 0.0, request_id)
        else:
            key = (0, request.priority, request.arrival_time, request_id)
        bisect.insort(self._keys, key)
        self._requests[key] = request
        self._key_of[request.request_id] = key
