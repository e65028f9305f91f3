"""A worker in another language, as Job lock (docs/sources.md) describes it: it knows lockOwner, lockExpiresAt and status, and no more.

worker.py PROJECT acquire|release|finish COLLECTION/ID OWNER [TTL_SECONDS], with FIRESTORE_EMULATOR_HOST set.
Prints what came of it as JSON.
"""

import datetime
import json
import sys

from google.cloud import firestore


def parse_time(text):
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (AttributeError, ValueError):
        return None


@firestore.transactional
def acquire(transaction, document, owner, ttl):
    found = document.get(transaction=transaction)
    if not found.exists:
        return {"error": "not_found"}
    data = found.to_dict()
    if data.get("status") in ("READY", "FAILED"):
        return {"acquired": False, "reason": "already_finished"}
    now = datetime.datetime.now(datetime.timezone.utc)
    expires_at = parse_time(data.get("lockExpiresAt"))
    if data.get("lockOwner") and expires_at and expires_at > now:
        return {"acquired": False, "reason": "locked"}
    until = now + datetime.timedelta(seconds=ttl)
    transaction.update(document, {"lockOwner": owner, "lockExpiresAt": until.isoformat()})
    return {"acquired": True}


@firestore.transactional
def release(transaction, document, owner):
    data = document.get(transaction=transaction).to_dict()
    if data.get("lockOwner") != owner:
        return {"released": False}
    gone = firestore.DELETE_FIELD
    transaction.update(document, {"lockOwner": gone, "lockExpiresAt": gone})
    return {"released": True}


def main(project, what, path, owner, ttl="300"):
    database = firestore.Client(project=project)
    document = database.document(path)
    if what == "acquire":
        answer = acquire(database.transaction(), document, owner, int(ttl))
    elif what == "release":
        answer = release(database.transaction(), document, owner)
    else:
        document.update({"status": "READY", "result": {"pages": 7}})
        answer = {"finished": True}
    print(json.dumps(answer))


main(*sys.argv[1:])
