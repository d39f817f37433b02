#!/usr/bin/env python3
"""Runs a command until it has printed a line, as a server prints its address, and then interrupts it as Ctrl-C does. Exits as the command did.

    ctrl_c.py COMMAND…
"""
import signal
import subprocess
import sys

with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True) as command:
    print(command.stdout.readline(), end="", flush=True)
    command.send_signal(signal.SIGINT)
    print(command.stdout.read(), end="")
sys.exit(command.returncode if command.returncode >= 0 else 128 - command.returncode)
