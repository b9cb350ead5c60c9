"""Emission through Kinesis, for event loops: each method as in its synchronous class."""

from __future__ import annotations

from countledger.ledger.asynchronous.forms import AsyncForm, iterated_in_thread, threaded
from countledger.producers.ingest.redrive import ExpiredEntries
from countledger.producers.kinesis import KinesisProducer


class AsyncKinesisProducer(AsyncForm[KinesisProducer]):
    """Sends events through the stack's Kinesis stream; see `KinesisProducer`."""

    send_many = threaded(KinesisProducer.send_many)
    send_stream = iterated_in_thread(KinesisProducer.send_stream)
    resend = threaded(KinesisProducer.resend)


class AsyncExpiredEntries(AsyncForm[ExpiredEntries]):
    """Entries that came after their horizon; see `ExpiredEntries`."""

    list = iterated_in_thread(ExpiredEntries.list)
    resend = iterated_in_thread(ExpiredEntries.resend)
