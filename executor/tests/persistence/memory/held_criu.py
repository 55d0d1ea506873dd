"""Runs CRIU, and holds it at one step of its conversation with the supervisor: `before` the supervisor
hears of the step, or `after` it has answered. The file `reached` tells that all stand still; with
`kill` CRIU has been killed. Later runs of CRIU are not held."""
import os
import select
import signal
import socket
import sys

criu, step, when, action, reached, *arguments = sys.argv[1:]
if os.path.exists(reached):
    os.execv(criu, [criu, *arguments])
FOLDER = 100
own, supervisor = os.getpid(), os.getppid()
outer = socket.socket(fileno=3)
inner, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
# The first option is a descriptor of the supervisor. CRIU looks it up in its peer: here itself.
request = bytearray(outer.recv(1 << 16))
place = 3
while request[place] & 0x80:
    place += 1
place += 2
os.dup2(os.open(f"/proc/{supervisor}/fd/{request[place]}", os.O_RDONLY), FOLDER)
request[place] = FOLDER


def hold():
    open(reached, "x").close()
    if action == "kill":
        os.kill(own, signal.SIGKILL)
        os._exit(0)
    signal.pause()


def relay():
    is_reached = False
    inner.send(request)
    while True:
        for source in select.select([inner, outer], [], [])[0]:
            message, descriptors, *_ = socket.recv_fds(source, 1 << 16, 8)
            if not message:
                os._exit(0)
            if source is inner and step.encode() in message:
                is_reached = True
                if when == "before":
                    hold()
            elif source is outer and is_reached:
                hold()
            socket.send_fds(outer if source is inner else inner, [message], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


if os.fork() == 0:
    if os.fork() == 0:
        remote.close()
        relay()
    os._exit(0)
os.wait()
inner.close()
os.dup2(remote.fileno(), 3)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execv(criu, [criu, *arguments])
