# packages: celery[redis]
"""Celery while its server is killed: says what is tried, added and begun, until it is told to stop."""
import os, subprocess, sys, threading, time
import redis
from celery import Celery

url = os.environ["REDIS_URL"]
app = Celery("killed", broker=url)
app.conf.update(
    task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=1, worker_redirect_stdouts=False,
    worker_hijack_root_logger=False, broker_connection_retry_on_startup=True, broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": 5, "socket_timeout": 10}, worker_cancel_long_running_tasks_on_connection_loss=False,
)


def say(*words):
    os.write(1, (" ".join(words) + "\n").encode())


@app.task(name="killed.job")
def job(name):
    say("began", name)


if sys.argv[1:] == ["worker"]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "CRITICAL"]
    app.worker_main(["worker", "-P", "threads", "-c", "4", *quiet])
    sys.exit(0)

stopping = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stopping.set()), daemon=True).start()


def start():
    return subprocess.Popen([sys.executable, "-P", "-W", "ignore", __file__, "worker"], stdin=subprocess.DEVNULL)


worker, number = start(), 0
try:
    while not stopping.is_set():
        name, number = f"c-{number}", number + 1
        say("tried", name)
        try:
            job.apply_async((name,), retry=False)
            say("added", name)
        except Exception:
            time.sleep(0.05)
        if worker.poll() is not None:
            # A service manager starts it again.
            worker = start()
        time.sleep(0.005)
    client, quiet = redis.from_url(url), 0
    for _ in range(900):
        left = client.llen("celery") + client.hlen("unacked")
        quiet = quiet + 1 if left == 0 else 0
        if quiet == 20:
            break
        time.sleep(0.1)
    else:
        say("fault", f"{left} jobs are left")
finally:
    worker.terminate()
    worker.wait()
say("end")
