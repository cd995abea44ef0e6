"""Attacks on processes, users and the kernel's other doors."""

from farflung.sandbox.code.attacks.attack import Attack, fails, tries
from farflung.sandbox.code.report import Outcome

_FORBIDDEN = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "vmsplice": (278, 75),
    "init_module": (175, 105),
    "kexec_load": (246, 104),
    "syslog": (103, 116),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "personality": (135, 92),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "clone3": (435, 435),
    "capset": (126, 91),
    "setuid": (105, 146),
    "setgroups": (116, 159),
    "inotify_init1": (294, 26),
    "a call of the future": (1000, 1000),
}

PROCESSES: tuple[Attack, ...] = (
    tries(
        "fork bomb",
        "E5",
        """
children = 0
try:
    while children < 200:
        if os.fork() == 0:
            try:
                while True:
                    os.fork()
            except OSError:
                import time
                time.sleep(60)
        children += 1
except OSError:
    pass
if children > 20:
    print("escaped:", children, "children")
""",
    ),
    tries(
        "bomb of threads",
        "E5",
        """
import threading, time
started = 0
try:
    while started < 200:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
if started > 20:
    print("escaped:", started, "threads")
sys.stdout.flush()
print("held", flush=True)
os._exit(0)
""",
    ),
    tries(
        "kill everybody",
        "E5",
        """
import signal
for pid in ({pid}, 1, os.getppid(), -1):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        if pid == -1 and number != signal.SIGTERM:
            continue  # that would only end this program
        try:
            os.kill(pid, number)
        except OSError:
            pass
attempt("a process outside", lambda: os.kill({pid}, 0) if {pid} not in (1, 2, os.getpid()) else 1 / 0)
""",
    ),
    fails(
        "kill the supervisor, then claim success",
        "E4",
        """
import os, signal
print("held", flush=True)
for n in [n for n in range(1, 65) if n != signal.SIGKILL] + [signal.SIGKILL]:
    try: os.kill(1, n)
    except OSError: pass
raise SystemExit(3)
""",
        Outcome.RUNTIME_ERROR,
    ),
    tries(
        "become root",
        "E5",
        """
for name in ("setuid", "setgid", "seteuid", "setegid"):
    attempt(name, lambda: getattr(os, name)(0))
attempt("setresuid", lambda: os.setresuid(0, 0, 0))
attempt("setgroups", lambda: os.setgroups([0]))
if os.getuid() == 0 or os.getgroups() not in ([], [os.getgid()], [65534]):
    print("escaped:", os.getuid(), os.getgroups())
""",
    ),
    tries(
        "raise its own limits",
        "E5",
        """
import resource
for kind in ("AS", "CPU", "NPROC", "FSIZE", "NOFILE", "CORE", "MEMLOCK"):
    number = getattr(resource, "RLIMIT_" + kind)
    most = resource.getrlimit(number)[1]
    attempt(kind, lambda: resource.setrlimit(number, (most + 1, most + 1)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
""",
    ),
    tries(
        "system calls through ctypes",
        "E5",
        f"\nfor name, numbers in {_FORBIDDEN!r}.items():\n"
        "    attempt(name, lambda: kernel(*numbers, 0, 0, 0, 0, 0, 0))\n",
    ),
    tries(
        "a namespace of its own through clone",
        "E5",
        """
for flags in (0x10000000, 0x20000, 0x40000000, 0x20000000):
    attempt(hex(flags), lambda: kernel(56, 220, flags | 17, 0, 0, 0, 0))
""",
    ),
    fails(
        "32-bit system calls",
        "E5",
        """
import ctypes, mmap, platform
if platform.machine() != "x86_64":
    raise SystemExit(3)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
pid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print("held" if pid > 0 else "")
""",
        Outcome.RUNTIME_ERROR,
    ),
    tries(
        "crash with a core dump into the host",
        "E5",
        """
import ctypes, time
pid = os.fork()
if pid == 0:
    ctypes.string_at(0)
os.waitpid(pid, 0)
if os.listdir("."):
    print("escaped:", os.listdir("."))
""",
    ),
    fails(
        "a daemon that outlives the program",
        "E5",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(2)
        print("held", flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
""",
        Outcome.WRONG_RESULT,
    ),
    fails(
        "a thread that outlives the program",
        "E4",
        "import threading, time, os\n"
        "def late():\n    time.sleep(1)\n    print('held', flush=True)\n"
        "threading.Thread(target=late, daemon=True).start()\n",
        Outcome.WRONG_RESULT,
    ),
    fails(
        "a thread that never lets the program end",
        "E5",
        "import threading, time\nprint('held', flush=True)\nthreading.Thread(target=time.sleep, args=(600,)).start()\n",
        Outcome.TIME_LIMIT,
    ),
)
