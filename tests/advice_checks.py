"""What tests/advice.sh asks of the JSON of `capstan lab advise`. Not a test by itself.

usage: advice_checks.py FILE names PART             the bottleneck of what there is now
       advice_checks.py FILE relieves PART          the first change relieves this part, and gains more than rounds differ by
       advice_checks.py FILE changes LEVER LESS|MORE  the first change sets this to less, or to more, than it was
       advice_checks.py FILE promises-nothing       no change gains more than rounds differ by
       advice_checks.py FILE reaches NANOSECONDS PERCENT  a backup that took so long was as fast as is forecast now, as nearly as that
       advice_checks.py FILE keeps WHAT PERCENT     what was tried, `now` or `advised`, gave what was predicted, as nearly as that
"""

import json
import sys

# What rounds of a measurement differ by on a busy machine.
NOISE = 0.25
SETTING_OF_LEVER = {"compression": "compression_level", "connections": "connections", "pool": "pool_bytes"}


def told(changes):
    return "; ".join(f"{one['lever']} {one['from']} -> {one['to']}: {one['gain']:+.0%}" for one in changes) or "nothing"


def names(advice, part):
    now = advice["now"]["forecast"]
    rates = ", ".join(f"{name} {rate:.1f}" for name, rate in now["parts"])
    return now["bottleneck"] == part, f"the bottleneck is {now['bottleneck']}: {rates} MB/s"


def relieves(advice, part):
    first = advice["changes"][:1]
    return bool(first) and first[0]["relieves"] == part and first[0]["gain"] > NOISE, told(advice["changes"])


def changes(advice, lever, way):
    key = SETTING_OF_LEVER[lever]
    now, then = (advice[which]["setting"][key] for which in ("now", "advised"))
    first = advice["changes"][:1]
    right = bool(first) and first[0]["lever"] == lever and (then < now if way == "less" else then > now)
    return right, f"{told(advice['changes'])}; {key} {now} -> {then}"


def promises_nothing(advice):
    return all(change["gain"] <= NOISE for change in advice["changes"]), told(advice["changes"])


def reaches(advice, nanoseconds, percent):
    predicted = advice["now"]["forecast"]["mb_per_s"]["median"]
    reached = advice["source_mb"] / (float(nanoseconds) / 1e9)
    error = (predicted / reached - 1) * 100
    return abs(error) <= float(percent), f"{predicted:.1f} MB/s were forecast, {reached:.1f} reached: {error:+.1f} %"


def keeps(advice, what, percent):
    tried = [one for one in advice["trials"] if one["what"] == what]
    if not tried:
        return False, f"nothing was tried as {what}"
    trial, error = tried[0]["trial"], tried[0]["error"] * 100
    rates = trial["measured_mb_per_s"]
    return abs(error) <= float(percent), (
        f"{trial['predicted_mb_per_s']:.1f} MB/s were predicted, "
        f"{rates['low']:.1f} to {rates['high']:.1f} measured: {error:+.1f} %"
    )


def main():
    _, path, check, *arguments = sys.argv
    with open(path, encoding="utf-8") as file:
        advice = json.load(file)
    checks = {
        "names": names,
        "relieves": relieves,
        "changes": changes,
        "promises-nothing": promises_nothing,
        "reaches": reaches,
        "keeps": keeps,
    }
    right, seen = checks[check](advice, *arguments)
    print(seen)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
