"""How values are written as JSON, so that those of any engine can be compared with those that were sent, text with text."""
import base64
import datetime


def spell(value, texts_are_bytes=False):
    """Bytes and times by name; members that are null are not there, an element of a list stays."""
    if isinstance(value, dict):
        return {name: spell(member, texts_are_bytes) for name, member in value.items() if member is not None}
    if isinstance(value, (list, tuple)):
        return [spell(item, texts_are_bytes) for item in value]
    if isinstance(value, str) and texts_are_bytes:
        value = value.encode()
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return {"time": moment.astimezone(datetime.UTC).isoformat(timespec="microseconds")}
    return value
