"""Area: stdio programs
Source: sailingsam/tryjarvis#2, open-webui/mcpo#154
Met: A server that died at its start left its user with a word about the plumbing; the reason stood in the last line of a long traceback that nobody was shown.
First try: fail: the log shows the first 50 lines of the traceback in that second and drops the rest, so the line with the reason is nowhere, neither in the log nor
    in the answer; only `raincheck check` names it
Verdict: Mended: the last line that speaks of an error is in the line that says that the process ended.
"""

from house import until

PROGRAM = r'''
import sys
sys.stderr.write("  + Exception Group Traceback (most recent call last):\n")
for number in range(120):
    sys.stderr.write(f"  |   File \"/app/lib/part_{number}.py\", line {number}, in run\n")
sys.stderr.write("KeyError: 'BROWSERBASE_API_KEY'\n")
sys.exit(1)
'''
REASON = "KeyError: 'BROWSERBASE_API_KEY'"


def test(field):
    program = field.write("crash.py", PROGRAM)
    raincheck = field.raincheck("--", "python3", program)
    answer = raincheck.session().first.text
    until("the end of the process is told", lambda: "ended by itself" in raincheck.log())
    assert REASON in raincheck.log() + answer, "run: the reason is shown nowhere"
    # What a client's user has is the log of the command in its settings, and the error of `initialize`.
    pipe = field.stdio("--", "python3", program)
    answer = pipe.hello()
    assert "error" in answer
    until("the end of the process is told", lambda: "ended by itself" in pipe.log())
    assert REASON in pipe.log() + str(answer), "stdio: the reason is shown nowhere"
