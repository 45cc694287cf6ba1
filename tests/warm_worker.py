"""`calmoe.experiments.engines.worker` that has imported what each worker would: a second for all of them."""

import socket
import sys

import torch._dynamo  # noqa: F401  when training begins

from calmoe.experiments.engines.worker import main

if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
