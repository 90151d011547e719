"""A handler that gives each delivery a span, which is current while its syncer runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chronicle.core.delivery import Delivery
from chronicle.core.pipeline import Pipeline
from chronicle.core.policy import Policy
from chronicle.core.settlement import Settlement
from chronicle.telemetry.consumer_spans import ConsumerSpans
from chronicle.workers.handler import Handler


class TracedHandler(Handler):
    """A class of its own, so that without spans there is not even a question for each message."""

    def __init__(
        self,
        pipeline: Pipeline,
        policy: Policy,
        call: Callable[..., Any],
        *,
        takes_delivery: bool,
        spans: ConsumerSpans,
        time_limit: float = 0.0,
    ) -> None:
        super().__init__(pipeline, policy, call, takes_delivery=takes_delivery, time_limit=time_limit)
        self._spans = spans

    def run(self, delivery: Delivery) -> Settlement:
        begun = self._spans.begin(delivery)
        return self._spans.end(begun, super().run(delivery))

    async def run_async(self, delivery: Delivery) -> Settlement:
        begun = self._spans.begin(delivery)
        return self._spans.end(begun, await super().run_async(delivery))
