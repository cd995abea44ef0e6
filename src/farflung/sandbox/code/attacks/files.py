"""Attacks on files: secrets, tests, the interpreter, the host's tree."""

from farflung.sandbox.code.attacks.attack import Attack, tries

FILES: tuple[Attack, ...] = (
    tries("read the password file", "E5", 'attempt("shadow", lambda: open("/etc/shadow").read())\n'),
    tries("read a secret of the host", "E5", 'attempt("secret", lambda: open("{secret}").read())\n'),
    tries(
        "read keys in home folders",
        "E5",
        """
import glob
for pattern in ("/root/.ssh/*", "/home/*", "/root/.*history", "/etc/passwd", "/var/*", "/run/*", "/opt/*", "/sys/*"):
    for path in glob.glob(pattern):
        print("escaped:", path)
""",
    ),
    tries(
        "read /proc of all processes",
        "E3",
        """
import glob
for path in glob.glob("/proc/*/cmdline") + glob.glob("/proc/*/environ"):
    attempt(path, lambda: open(path, "rb").read())
attempt("memory of process 1", lambda: open("/proc/1/mem", "rb").read(1))
""",
    ),
    tries(
        "find the tests in argv, environment and working folder",
        "E3",
        """
known = {"PATH", "LANG", "HOME", "PYTHONHASHSEED", "PWD", "LC_CTYPE"}
if [word for word in sys.argv if word] or os.listdir(".") or set(os.environ) - known:
    print("escaped:", sys.argv, os.listdir("."), dict(os.environ))
""",
    ),
    tries(
        "follow symbolic links out",
        "E5",
        """
os.symlink("{secret}", "link")
attempt("link", lambda: open("link").read())
os.symlink("/", "root")
attempt("write through a link", lambda: open("root/usr/lib/x", "w").write("x"))
os.makedirs("a/b")
attempt("many parents", lambda: open("../" * 40 + "{secret}".lstrip("/")).read())
""",
    ),
    tries(
        "hard links and moves across the wall",
        "E5",
        """
attempt("link", lambda: os.link(os.__file__, "os.py"))
attempt("move", lambda: os.rename(os.__file__, "os.py"))
""",
    ),
    tries(
        "write where the next program reads",
        "E5",
        """
for path in (os.__file__, "/usr/lib/x", "/farflung-source/farflung/__init__.py", "/x", "/dev/x", "/etc/x"):
    attempt(path, lambda: open(path, "a").write("x"))
attempt("folder", lambda: os.mkdir("/usr/lib/python3/x"))
attempt("mode", lambda: os.chmod(os.__file__, 0o777))
""",
    ),
    tries(
        "make a device",
        "E5",
        """
import stat
attempt("disk", lambda: os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0)))
attempt("memory", lambda: os.mknod("memory", 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
for name in os.listdir("/dev"):
    if name not in ("null", "zero", "full", "random", "urandom"):
        print("escaped:", name)
""",
    ),
    tries("change the root", "E5", 'os.mkdir("x")\nattempt("chroot", lambda: os.chroot("x"))\n'),
    tries(
        "import what is installed, with the answers of a data set",
        "E3",
        """
import glob
libraries = {os.path.dirname(os.path.dirname(os.__file__)), "/usr/lib", "/usr/local/lib", sys.prefix + "/lib"}
for library in libraries:
    for path in glob.glob(library + "/python3*/*-packages/*"):
        print("escaped:", path)
""",
    ),
    tries(
        "run a program of another user's rights",
        "E5",
        """
import glob
for path in glob.glob("/usr/*bin/*") + glob.glob("/bin/*") + glob.glob("/usr/lib/*/*") + glob.glob("/usr/libexec/*"):
    if os.path.isfile(path) and os.stat(path).st_mode & 0o6000 and not os.statvfs(path).f_flag & os.ST_NOSUID:
        print("escaped:", path)
if not os.statvfs(".").f_flag & os.ST_NOSUID:
    print("escaped: files of its own")
""",
    ),
)
