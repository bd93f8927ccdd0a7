"""Area: deployment
Source: t2bot/matrix-media-repo#319
Met: A changed ConfigMap was never noticed, because its file is a link to a link, of which Kubernetes swaps the middle one and removes what it pointed to.
First try: pass
Verdict: A reload follows the links as they are then, for the settings and for the file of rules, by SIGHUP and by `POST /reload`; in the middle of a swap everything stays.
"""

import os
import shutil
import signal

from house import free_port, http, until
from servers import LegacyServer

RULE = '[[tools]]\nname = "slow"\nmode = "{}"\n'


def swap(volume, version, files):
    """As the kubelet writes a volume: a new folder, a new link, an atomic rename, and the old folder goes."""
    before = os.readlink(volume / "..data") if (volume / "..data").is_symlink() else None
    folder = volume / f"..{version}"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    (volume / "..data_tmp").symlink_to(folder.name)
    os.rename(volume / "..data_tmp", volume / "..data")
    if before:
        shutil.rmtree(volume / before)


def test(field):
    settings, rules = field.dir / "settings", field.dir / "rules"
    settings.mkdir()
    rules.mkdir()
    admin = free_port()
    whole = f'[tasks]\nrules_file = "{rules}/rules.toml"\ngrace_window = "%s"\n[admin]\nlisten = "127.0.0.1:{admin}"\n'
    swap(settings, "2026_01", {"raincheck.toml": whole % "2s"})
    swap(rules, "2026_01", {"rules.toml": RULE.format("never")})
    raincheck = field.raincheck("--upstream", LegacyServer().url, "--config", str(settings / "raincheck.toml"))
    becomes_task = lambda: "taskId" in raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]
    assert not becomes_task()
    swap(rules, "2026_02", {"rules.toml": RULE.format("always")})
    raincheck.child.send_signal(signal.SIGHUP)
    until("the rule applies", becomes_task)
    swap(settings, "2026_02", {"raincheck.toml": whole % "5s"})
    answer = http(admin, "POST", path="/reload")
    assert answer.status == 200 and "grace_window" in answer.text, answer.text
    # The links lead nowhere for a moment.
    (rules / "..data").unlink()
    answer = http(admin, "POST", path="/reload")
    assert answer.status == 409 and "rules.toml" in answer.text, answer.text
    assert becomes_task()
    (rules / "..data").symlink_to("..2026_02")
    swap(rules, "2026_03", {"rules.toml": RULE.format("never")})
    assert http(admin, "POST", path="/reload").status == 200
    assert not becomes_task()
