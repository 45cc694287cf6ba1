"""What is done in another thread while a test does something else."""

import threading
import time
from contextlib import contextmanager


@contextmanager
def meanwhile(act):
    """Beside what is inside, as long as that lasts: call `act` until it is true."""
    over = threading.Event()

    def work():
        while not (over.is_set() or act()):
            time.sleep(0.005)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=10)
