"""Counts, and writes each number to the workspace with a token that is in memory only.

Arguments: MiB of other memory, so that a save and a restore take a while. Each line is one write.
"""

import os
import sys
import time

data = os.urandom(int(sys.argv[1]) << 20)
token, number = os.urandom(8).hex(), 0
while True:
    number += 1
    with open("/workspace/beats", "a") as beats:
        beats.write(f"{token} {number}\n")
    time.sleep(0.02)
