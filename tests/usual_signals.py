"""Signals as a program finds them that a person starts in a terminal."""

import signal


def restore_signals() -> None:
    """Undo what the shell, `nohup` or a service ignores or blocks, which children inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
