import json, os, sys, time

WORK, JOB = os.environ["WORK"], os.environ["JOB"]
LEDGER = os.path.join(WORK, "ledger")

def note(word):  # in one write, so that lines of scripts that run at once do not mix
    with open(LEDGER, "a") as f:
        f.write(JOB + " " + word + "\n")

def runs():  # of this job, this one included
    with open(LEDGER) as f:
        return f.read().splitlines().count(JOB + " start")

def put(name, value):
    with open(os.path.join(WORK, name), "w") as f:
        json.dump(value, f)

def get(name):  # fails where the job that makes it has not ended
    with open(os.path.join(WORK, name)) as f:
        return json.load(f)

def done(result):
    note("done")
    print(result if isinstance(result, str) else json.dumps(result))

note("start")
