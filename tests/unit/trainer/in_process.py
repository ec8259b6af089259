"""A learner in a thread of this process, and the supervisor's end of its channel."""

from __future__ import annotations

import os
import threading

from dressage.sandbox.pipe import Channel, ChannelClosed
from dressage_trainer.learner import learn
from dressage_trainer.messages import TrainSpec, parse


class Supervisor:
    """The other end of the learner's channel. The working directory becomes the learner's folder."""

    def __init__(self, folder, request):
        to_learner, from_learner = os.pipe(), os.pipe()
        self.channel = Channel(from_learner[0], to_learner[1])
        theirs = Channel(to_learner[0], from_learner[1])

        def work():
            try:
                learn(theirs)
            finally:
                theirs.close()

        folder.mkdir(exist_ok=True)
        os.chdir(folder)
        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        self.channel.send(request.to_dict() if isinstance(request, TrainSpec) else request)

    def messages(self):
        while True:
            try:
                message = self.channel.recv(timeout=240)
            except ChannelClosed:
                self.thread.join(10)
                return
            yield parse(message)


def run(folder, request):
    return list(Supervisor(folder, request).messages())
