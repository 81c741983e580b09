"""The tree that tests/reader.sh backs up, and what it needs to compare and to damage.

usage: reader_tree.py make DIR                  a few hundred entries, some 20 MB, mostly noise
       reader_tree.py change DIR                what an incremental object has to tell
       reader_tree.py manifest DIR              for each path a line of three columns: path as the reader shows it;
                                                attributes, and SHA-256 of what it holds; number of names
       reader_tree.py flip CARTRIDGE.tape LBN   changes a byte in the middle of a block, found by the index file
"""
import hashlib, os, random, shutil, stat, struct, sys

from reader_checks import crc32c, shown

SECOND = 10**9


def write(path, data, time=None):
    with open(path, "wb") as file:
        file.write(data)
    if time is not None:
        os.utime(path, ns=(time, time))


def make(root):
    noise = random.Random(1)
    os.makedirs(root)
    os.chdir(root)
    for number in range(4):
        write(f"noise-{number}", noise.randbytes(4_300_000 + 77_777 * number))
    for number in range(300):
        folder = f"small/{number % 12:02}"
        os.makedirs(folder, exist_ok=True)
        text = bytes(f"the file {number}\n" * noise.randrange(60), "ascii")
        data = text if number % 3 else noise.randbytes(number * 41)
        write(f"{folder}/{number:03}", data, number * 86_400 * SECOND + number)
    for size in (0, 1, 511, 512, 513, 524_288):
        write(f"size-{size}", noise.randbytes(size))

    deep = "/".join(["d" * 180] * 8)
    os.makedirs(deep)
    write(deep + "/" + "f" * 250, b"deep")
    write("n" * 255, b"a long name")
    write(b"\xff\xfe not UTF-8 \xe9", b"a name of bytes")
    write(b"a line\nanother", b"a name of two lines")
    write("größe — 大きさ".encode(), b"a name in UTF-8")
    os.mkdir(b"folder \xe9")
    write(b"folder \xe9/" + b"\xfc" * 200, b"a long name of bytes")

    os.symlink("noise-0", "link")
    os.symlink("nothing/" * 40, "link to nothing")
    os.symlink(b"\xff\xfe not UTF-8 \xe9", b"link \xe9")
    os.link("noise-1", "small/00/hard link")
    os.link(deep + "/" + "f" * 250, "small/01/hard link")
    os.link(b"\xff\xfe not UTF-8 \xe9", b"hard link \xe8")
    os.link("link", "hard link to a symlink")

    with open("sparse", "wb") as file:
        for at in range(0, 40_000_000, 1_000_003):
            file.seek(at)
            file.write(b"island" * 20)
        file.truncate(50_000_000)
    with open("sparse, all hole", "wb") as file:
        file.truncate(200_000_000)
    os.mkfifo("fifo")

    for name, mode in (("set", 0o6755), ("none", 0 if os.geteuid() == 0 else 0o400), ("all", 0o777)):
        write("mode " + name, b"x")
        os.chmod("mode " + name, mode)
    os.mkdir("mode sticky")
    os.chmod("mode sticky", 0o1777)
    for time in (-1, 0, -1_500_000_000, 4_262_304_000 * SECOND + 123_456_789):
        write(f"time {time}", b"x", time)
    os.mkdir("time")
    os.utime("time", ns=(12_345 * SECOND + 6, 12_345 * SECOND + 6))
    os.setxattr("mode all", "user.bytes", bytes(range(256)))
    os.setxattr("mode all", "user.a=b%3D", b"a name that has to be escaped\n")


def change(root):
    noise = random.Random(2)
    os.chdir(root)
    write("noise-0", noise.randbytes(2_000_000))
    write("new", noise.randbytes(300_000))
    os.unlink("noise-2")
    os.chmod("size-512", 0o600)
    os.utime("size-513", ns=(5, 5))
    os.setxattr("size-511", "user.new", b"1")
    shutil.rmtree("small/02")
    os.rename("small/03", "moved")
    os.unlink("size-1")
    os.mkdir("size-1")
    write("size-1/inside", b"a file became a directory")
    shutil.rmtree("small/04")
    os.symlink("05", "small/04")
    os.unlink("fifo")
    write("fifo", b"a pipe became a file")
    os.link("noise-3", "small/05/new hard link")
    os.unlink("noise-1")  # the other name stays
    with open("small/01/hard link", "ab") as file:
        file.write(b", and more")


def line(path):
    about = os.lstat(path)
    kind, what = stat.S_IFMT(about.st_mode), ""
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            what = f"{about.st_size} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    elif kind == stat.S_IFLNK:
        what = repr(os.readlink(path))
    user = [name for name in sorted(os.listxattr(path, follow_symlinks=False)) if name.startswith("user.")]
    attributes = {name: os.getxattr(path, name) for name in user}
    names = about.st_nlink if kind != stat.S_IFDIR else "-"
    owner = f"{about.st_uid}:{about.st_gid}"
    return f"{shown(path)}\t{about.st_mode:o} {owner} {about.st_mtime_ns} {what} {attributes or ''}\t{names}"


def manifest(root):
    os.chdir(root)
    paths = [b"."]
    for folder, folders, files in os.walk(b"."):
        paths += [os.path.join(folder, name) for name in folders + files]
    for path in sorted(paths):
        print(line(path))


def flip(tape, lbn):
    with open(tape.removesuffix(".tape") + ".index", "rb") as index:
        life = index.read(32)[16:24]
        index.seek(32 + 16 * lbn)
        entry = index.read(16)
    record, kind, crc = struct.unpack("<QB3xI", entry)
    assert kind == 1 and crc == crc32c(life + struct.pack("<Q", lbn) + entry[:12]), "no block stands there"
    with open(tape, "r+b") as file:
        file.seek(record)
        header = file.read(36)
        assert header[:4] == b"CPR1" and struct.unpack_from("<Q", header, 16)[0] == lbn
        at = record + 36 + struct.unpack_from("<I", header, 24)[0] // 2
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    if command == "flip":
        flip(rest[0], int(rest[1]))
    else:
        {"make": make, "change": change, "manifest": manifest}[command](*rest)
